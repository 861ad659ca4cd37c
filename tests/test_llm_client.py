"""The chat client against a real HTTP server that misbehaves on command."""

import asyncio
import json
import os
import socket
import time

import pytest
from scripted_server import Reply, ScriptedServer, faulty

from recipe_slca import llm_client
from recipe_slca.llm_client import METRICS, ChatClient, EndpointFailure, UnusableAnswer
from recipe_slca.settings import EndpointSettings, SettingsError

QUESTION = [{"role": "user", "content": "hello there"}]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(llm_client, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(llm_client, "FIRST_REST_S", 0.1)


def settings(*urls: str, **others) -> EndpointSettings:
    return EndpointSettings(**{"base_urls": list(urls), "model": "scripted", "timeout_s": 5.0, **others})


def ask(endpoint: EndpointSettings, accept=str, times: int = 1, **options):
    """The answers (or exceptions) of concurrent questions, and the client's metrics."""

    async def run():
        client = ChatClient(endpoint, "simulator")
        try:
            asked = (client.ask(QUESTION, accept, **options) for _ in range(times))
            return await asyncio.gather(*asked, return_exceptions=True), client.metrics()
        finally:
            await client.close()

    return asyncio.run(run())


def in_turn(*replies: Reply):
    """A script that gives these replies one after the other, then the last one again."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_request_carries_the_settings():
    with ScriptedServer(in_turn(Reply("hi"))) as server:
        endpoint = settings(server.url, temperature=0.7, top_p=0.9, max_tokens=77, seed=5)
        answers, metrics = ask(endpoint, sample=2, response_format={"type": "json_object"})
    assert answers == ["hi"]
    (request,) = server.requests
    assert request["messages"] == QUESTION
    assert {key: request[key] for key in ("model", "temperature", "top_p", "max_tokens", "seed")} == {
        "model": "scripted",
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 77,
        "seed": 7,
    }
    assert request["response_format"] == {"type": "json_object"}
    assert set(metrics) == set(METRICS)
    assert (metrics["requests"], metrics["prompt_tokens"], metrics["completion_tokens"]) == (1, 2, 1)
    assert 0 < metrics["latency_p50_s"] < 5


def test_no_seed_is_sent_when_none_is_set():
    with ScriptedServer(in_turn(Reply("hi"))) as server:
        ask(settings(server.url, seed=None))
    assert "seed" not in server.requests[0]


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=500),
        Reply(status=429),
        Reply(fault="drop"),
        Reply(fault="half_body"),
        Reply(fault="garbage"),
        Reply(fault="no_choices"),
    ],
    ids=["500", "429", "drop", "half_body", "garbage", "no_choices"],
)
def test_a_failed_request_is_tried_again_and_then_given_up(fault):
    with ScriptedServer(in_turn(fault, Reply("fine"))) as server:
        answers, metrics = ask(settings(server.url))
    assert answers == ["fine"]
    assert (metrics["requests"], metrics["retries"], metrics["failures"]) == (2, 1, 0)

    with ScriptedServer(in_turn(fault)) as server:
        (failure,), metrics = ask(settings(server.url, retries=2))
    assert isinstance(failure, EndpointFailure)
    assert (failure.endpoint, failure.tries, len(server.requests)) == (server.url, 3, 3)
    assert server.url in str(failure) and failure.last_error in str(failure)
    assert metrics["failures"] == 1


def test_the_same_seed_is_sent_again_after_a_failed_request():
    with ScriptedServer(in_turn(Reply(status=500), Reply("fine"))) as server:
        ask(settings(server.url, seed=3))
    assert [request["seed"] for request in server.requests] == [3, 3]


def test_an_unusable_answer_is_asked_again_with_another_seed():
    def accept(text: str) -> dict:
        try:
            return json.loads(text)
        except ValueError as error:
            raise UnusableAnswer("not JSON") from error

    with ScriptedServer(in_turn(Reply("nope"), Reply("still not"), Reply('{"a": 1}'))) as server:
        answers, metrics = ask(settings(server.url, seed=3), accept, sample=1)
    assert answers == [{"a": 1}]
    assert [request["seed"] for request in server.requests] == [4, 1004, 2004]
    assert metrics["unusable_answers"] == 2

    with ScriptedServer(in_turn(Reply("nope"))) as server:
        (failure,), _ = ask(settings(server.url, retries=1), accept)
    assert isinstance(failure, EndpointFailure)
    assert failure.last_error == "unusable answer: not JSON"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_request_that_no_retry_can_mend_fails_at_once(status):
    with ScriptedServer(in_turn(Reply(status=status))) as server:
        (failure,), _ = ask(settings(server.url, retries=5))
    assert failure.last_error.startswith(f"HTTP {status}")
    assert failure.tries == len(server.requests) == 1


def test_a_misconfigured_server_among_others_fails_no_question():
    with ScriptedServer(in_turn(Reply(status=404))) as bad, ScriptedServer(in_turn(Reply("good"))) as good:
        answers, metrics = ask(settings(bad.url, good.url, retries=4), times=20)
    assert answers == ["good"] * 20
    assert metrics["endpoints_resting"] == 1


def test_a_request_has_a_deadline_even_when_the_server_only_dawdles():
    with ScriptedServer(in_turn(Reply("late", delay_s=30))) as server:
        start = time.monotonic()
        (failure,), _ = ask(settings(server.url, timeout_s=0.3, retries=1))
        took = time.monotonic() - start
    assert "no answer within 0.3 s" in failure.last_error
    assert took < 5


def test_no_server_at_all():
    (failure,), _ = ask(settings(f"http://127.0.0.1:{closed_port()}/v1"))
    assert isinstance(failure, EndpointFailure)
    assert "connection failed" in failure.last_error


def test_retry_after_is_honoured():
    with ScriptedServer(in_turn(Reply(status=429, headers={"retry-after": "0.5"}), Reply("fine"))) as server:
        start = time.monotonic()
        answers, _ = ask(settings(server.url))
        assert time.monotonic() - start >= 0.5
    assert answers == ["fine"]


def test_no_more_requests_at_once_than_allowed():
    with ScriptedServer(lambda request: Reply("hi", delay_s=0.05)) as server:
        answers, _ = ask(settings(server.url, max_concurrency=3), times=12)
    assert answers == ["hi"] * 12
    assert server.most_at_once == 3


def test_requests_are_spread_by_load():
    with (
        ScriptedServer(lambda request: Reply("hi", delay_s=0.05)) as one,
        ScriptedServer(lambda request: Reply("hi", delay_s=0.05)) as other,
    ):
        ask(settings(one.url, other.url), times=40)
    assert len(one.requests) == len(other.requests) == 20


def test_a_failing_server_is_rested(monkeypatch):
    monkeypatch.setattr(llm_client, "FIRST_REST_S", 600.0)

    async def run():
        client = ChatClient(settings(bad.url, good.url, retries=6), "simulator")
        answers = [await client.ask(QUESTION, str) for _ in range(30)]
        await client.close()
        return answers, client.metrics()

    with ScriptedServer(in_turn(Reply(status=500))) as bad, ScriptedServer(in_turn(Reply("good"))) as good:
        answers, metrics = asyncio.run(run())
    assert answers == ["good"] * 30
    assert len(bad.requests) == llm_client.FAILURES_BEFORE_REST
    assert metrics["endpoints_resting"] == 1


def test_a_server_that_recovered_is_asked_again():
    sick = True

    def script(request):
        return Reply(status=500) if sick else Reply("recovered")

    async def run():
        nonlocal sick
        client = ChatClient(settings(bad.url, good.url, retries=6), "simulator")
        for _ in range(5):
            assert await client.ask(QUESTION, str) == "good"
        sick = False
        while await client.ask(QUESTION, str) != "recovered":
            await asyncio.sleep(0.01)
        resting = client.metrics()["endpoints_resting"]
        await client.close()
        return resting

    with ScriptedServer(script) as bad, ScriptedServer(lambda request: Reply("good")) as good:
        assert asyncio.run(asyncio.wait_for(run(), 60)) == 0


def test_the_key_comes_from_the_environment_and_stays_out_of_errors(monkeypatch):
    monkeypatch.setenv("SLCA_TEST_KEY", "sk-very-secret")
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-service")
    with ScriptedServer(in_turn(Reply("hi"))) as server:
        ask(settings(server.url, api_key_env="SLCA_TEST_KEY"))
        ask(settings(server.url))
    assert server.authorizations == ["Bearer sk-very-secret", "Bearer none"]

    with ScriptedServer(in_turn(Reply("no such key: sk-very-secret", status=401))) as server:
        (failure,), _ = ask(settings(server.url, api_key_env="SLCA_TEST_KEY"))
    assert "no such key: ***" in str(failure) and "sk-very-secret" not in str(failure)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"base_urls": []}, "slca.judge.endpoint.base_urls"),
        ({"model": ""}, "slca.judge.endpoint.model"),
        ({"api_key_env": "SLCA_NOT_SET"}, "SLCA_NOT_SET"),
    ],
)
def test_an_unusable_endpoint_stops_at_the_start(changes, named):
    assert "SLCA_NOT_SET" not in os.environ
    with pytest.raises(SettingsError, match=named):
        ChatClient(settings("http://127.0.0.1:1/v1", **changes), "judge")


def test_a_failure_survives_the_way_between_processes():
    import pickle

    failure = pickle.loads(pickle.dumps(EndpointFailure("judge", "http://h/v1", "HTTP 500", 3)))
    assert (failure.name, failure.endpoint, failure.last_error, failure.tries) == (
        "judge",
        "http://h/v1",
        "HTTP 500",
        3,
    )


def test_many_questions_to_a_faulty_server_all_end():
    script = faulty(errors=0.10, slow=0.10, dropped=0.05, slow_s=0.2)
    with ScriptedServer(script) as server:
        answers, metrics = ask(settings(server.url, retries=2, max_concurrency=64, timeout_s=20.0), times=400)
    assert len(answers) == 400 and {type(answer) for answer in answers} <= {str, EndpointFailure}
    failed = sum(isinstance(answer, EndpointFailure) for answer in answers)
    assert failed == metrics["failures"] < 15
    assert metrics["requests"] == len(server.requests) == 400 + metrics["retries"]
