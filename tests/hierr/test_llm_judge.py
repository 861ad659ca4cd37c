"""The LLM judge against a real HTTP server: its prompt, its verdicts, its failures, its cache."""

import asyncio
import json

import pytest
from adversarial_texts import ADVERSARIAL_TEXTS
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Reply, ScriptedServer

from recipe_slca import llm_client
from recipe_slca.hierr.judge_prompt import RESPONSE_FORMAT, RUBRIC, cut_middle, judge_messages, read_verdict
from recipe_slca.hierr.llm_judge import LlmJudge
from recipe_slca.llm_client import UnusableAnswer
from recipe_slca.settings import JudgeSettings, SettingsError
from recipe_slca.sgls.chat_tokens import has_chat_tokens
from recipe_slca.sgls.single_flight import CacheMiss

QUESTION = "How warm is it in Oslo?"
RESPONSES = ['{"temp": 12}']
REPLY = "It is 12 degrees in Oslo."
GRADES = ("very poor", "poor", "acceptable", "good", "excellent")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(llm_client, "FIRST_BACKOFF_S", 0.01)
    monkeypatch.setattr(llm_client, "FIRST_REST_S", 0.01)


def verdict(grade):
    return Reply(json.dumps({"grade": grade}))


def in_turn(*replies):
    """A script that gives these replies in order and repeats the last."""
    waiting = list(replies)
    return lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def settings(server, cache=None, retries=2, **others):
    endpoint = {"base_urls": [server.url], "model": "scripted", "timeout_s": 5.0, "retries": retries}
    return JudgeSettings.model_validate({"endpoint": endpoint, "cache": cache or {}, **others})


def grade(judge_settings, *graded):
    """The grades of (question, responses, reply) triples, asked at once, and the judge's metrics."""

    async def run():
        judge = LlmJudge(judge_settings)
        try:
            asked = (judge.grade(*one) for one in graded or [(QUESTION, RESPONSES, REPLY)])
            return await asyncio.gather(*asked), judge.metrics()
        finally:
            await judge.close()

    return asyncio.run(run())


class TestVerdicts:
    @pytest.mark.parametrize(("name", "score"), list(zip(GRADES, [0, 0.25, 0.5, 0.75, 1], strict=True)))
    def test_the_five_grades(self, name, score):
        with ScriptedServer(lambda _: verdict(name)) as server:
            [given_grade], metrics = grade(settings(server))
        assert (given_grade.score, given_grade.failure) == (score, None)
        assert (metrics["graded"], metrics["ungraded"], metrics["requests"]) == (1, 0, 1)

    def test_the_request(self):
        with ScriptedServer(lambda _: verdict("good")) as server:
            grade(settings(server))
        [request] = server.requests
        assert request["temperature"] == 0
        assert request["response_format"] == RESPONSE_FORMAT
        assert request["messages"][0] == {"role": "system", "content": RUBRIC}
        assert all(name in RUBRIC for name in GRADES)

    @pytest.mark.parametrize(
        "text",
        [
            '{"grade": "good"}',
            ' \n{"grade":"good"}\n',
            '```json\n{"grade": "good"}\n```',
            '```\n{"grade": "good"}```',
            '<think>excellent? no: {"grade": "poor"}</think>{"grade": "good"}',
        ],
    )
    def test_accepted_forms(self, text):
        assert read_verdict(text) == "good"

    @pytest.mark.parametrize(
        "text",
        [
            *("", "good", '"good"', "[]", "null", "4", '{"grade": 4}', '{"grade": "Good"}', '{"grade": "superb"}'),
            *('{"grade": ["good"]}', '{"grade": {"good": 1}}', '{"Grade": "good"}', '{"grade": "good", "score": 5}'),
            *('{"grade": "good"} indeed', 'Verdict: {"grade": "good"}', '{"grade": "good"}{"grade": "poor"}'),
            *("I cannot rate this.", '{"grade": "good"', '<think>{"grade": "good"}', '{"grade": null}', "NaN"),
        ],
    )
    def test_all_else_is_no_verdict(self, text):
        with pytest.raises(UnusableAnswer):
            read_verdict(text)

    def test_the_median_of_several_samples_counts(self):
        def by_seed(request):
            return verdict({0: "excellent", 1: "poor", 2: "good"}[request["seed"]])

        with ScriptedServer(by_seed) as server:
            [given_grade], _ = grade(settings(server, samples=3))
        assert given_grade.score == 0.75
        assert sorted(request["seed"] for request in server.requests) == [0, 1, 2]

    def test_samples_that_fail_are_left_out(self):
        def by_seed(request):
            return verdict("poor") if request["seed"] % 1000 == 1 else Reply("no idea")

        with ScriptedServer(by_seed) as server:
            [given_grade], metrics = grade(settings(server, samples=3))
        assert given_grade.score == 0.25
        assert metrics["graded"] == 1


class TestFailures:
    @pytest.mark.parametrize(
        "bad", [Reply("I refuse."), Reply(status=500), Reply(status=429), Reply(fault="drop"), Reply(fault="garbage")]
    )
    def test_asked_again(self, bad):
        with ScriptedServer(in_turn(bad, verdict("poor"))) as server:
            [given_grade], _ = grade(settings(server))
        assert given_grade.score == 0.25
        assert len(server.requests) == 2

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            (Reply("I refuse."), "not JSON"),
            (Reply('{"grade": "superb"}'), "five grades"),
            (Reply(status=503), "HTTP 503"),
            (Reply(fault="drop"), "connection failed"),
        ],
    )
    def test_then_ungraded_and_never_zero(self, bad, reason):
        with ScriptedServer(lambda _: bad) as server:
            [given_grade], metrics = grade(settings(server))
        assert given_grade.score is None
        assert reason in given_grade.failure
        assert server.url in given_grade.failure
        assert len(server.requests) == 3
        assert (metrics["graded"], metrics["ungraded"]) == (0, 1)

    def test_a_slow_server_is_a_failure(self):
        with ScriptedServer(lambda _: Reply('{"grade": "good"}', delay_s=5)) as server:
            slow = settings(server, retries=0)
            impatient = slow.model_copy(update={"endpoint": slow.endpoint.model_copy(update={"timeout_s": 0.2})})
            [given_grade], _ = grade(impatient)
        assert given_grade.score is None
        assert "no answer within 0.2 s" in given_grade.failure

    def test_a_server_without_response_format_is_asked_plainly(self):
        def picky(request):
            return Reply(status=400) if "response_format" in request else verdict("good")

        with ScriptedServer(picky) as server:
            [first], _ = grade(settings(server))
        assert first.score == 0.75
        assert len(server.requests) == 2

    def test_it_is_not_offered_the_format_again(self):
        def picky(request):
            return Reply(status=400) if "response_format" in request else verdict("good")

        async def run(server):
            judge = LlmJudge(settings(server))
            for number in range(3):
                await judge.grade(QUESTION, RESPONSES, f"{REPLY} {number}")
            await judge.close()

        with ScriptedServer(picky) as server:
            asyncio.run(run(server))
        assert ["response_format" in request for request in server.requests] == [True, False, False, False]

    def test_a_request_that_is_wrong_either_way_keeps_the_format(self):
        with ScriptedServer(lambda _: Reply("too long", status=400)) as server:
            grades, _ = grade(settings(server), (QUESTION, RESPONSES, REPLY))
            assert grades[0].score is None
            assert ["response_format" in request for request in server.requests] == [True, False]

    def test_no_endpoint(self):
        with pytest.raises(SettingsError, match=r"slca\.judge\.endpoint"):
            LlmJudge(JudgeSettings())


class TestCache:
    def test_the_same_reply_is_asked_once(self):
        with ScriptedServer(lambda _: verdict("good")) as server:
            grades, metrics = grade(settings(server), *[(QUESTION, RESPONSES, REPLY)] * 5)
        assert {given_grade.score for given_grade in grades} == {0.75}
        assert len(server.requests) == 1
        assert metrics["cache_misses"] == 1

    def test_verdicts_outlive_the_process_and_failures_do_not(self, tmp_path):
        cache = {"path": str(tmp_path / "verdicts.sqlite")}
        other = (QUESTION, RESPONSES, "Another reply altogether.")
        with ScriptedServer(in_turn(Reply("no"), Reply("no"), Reply("no"), verdict("good"))) as server:
            assert grade(settings(server, cache))[0][0].score is None
            assert grade(settings(server, cache))[0][0].score == 0.75
            asked = len(server.requests)
            assert grade(settings(server, cache))[0][0].score == 0.75
            assert len(server.requests) == asked
            grade(settings(server, cache), other)
            assert len(server.requests) == asked + 1
            grade(settings(server, cache, samples=2))
            assert len(server.requests) == asked + 2

    def test_a_replay_only_run_asks_nothing(self, tmp_path):
        cache = {"path": str(tmp_path / "verdicts.sqlite")}
        with ScriptedServer(lambda _: verdict("good")) as server:
            grade(settings(server, cache))
            replay_only = settings(server, {**cache, "mode": "replay_only"})
            assert grade(replay_only)[0][0].score == 0.75
            with pytest.raises(CacheMiss):
                grade(replay_only, (QUESTION, RESPONSES, "Never seen before."))
            assert len(server.requests) == 1


class TestAdversarialTexts:
    def test_the_set_is_large_and_varied(self):
        assert len(set(ADVERSARIAL_TEXTS)) == len(ADVERSARIAL_TEXTS) >= 25

    def test_the_received_prompt_keeps_its_structure(self):
        graded = [
            entry
            for text in ADVERSARIAL_TEXTS
            for entry in ((text, RESPONSES, REPLY), (QUESTION, [text, text], REPLY), (QUESTION, RESPONSES, text))
        ]
        unlimited = {"max_tool_response_tokens": 10**6}
        with ScriptedServer(lambda _: verdict("poor")) as server:
            grades, _ = grade(settings(server, **unlimited), *graded)
        assert [given_grade.score for given_grade in grades] == [0.25] * len(graded)
        assert len(server.requests) == len(graded)
        received = [self.material_of(request) for request in server.requests]
        for question, responses, reply in graded:
            shown = [sendable(question), [sendable(response) for response in responses], sendable(reply)]
            assert shown in received

    def material_of(self, request):
        system, user = request["messages"]
        assert system == {"role": "system", "content": RUBRIC}
        assert user["role"] == "user"
        first, line, last = user["content"].split("\n")
        assert (first, last) == ("<material>", "</material>")
        assert "<" not in line
        assert not has_chat_tokens(line)
        material = json.loads(line)
        assert list(material) == ["question", "tool_responses", "reply"]
        return [material["question"], material["tool_responses"], material["reply"]]


@given(st.text(), st.lists(st.text(), max_size=3), st.text())
def test_any_text_stays_inside_the_material(question, responses, reply):
    _, user = judge_messages(question, responses, reply, 10**6)
    first, line, last = user["content"].split("\n")
    assert (first, last) == ("<material>", "</material>")
    assert json.loads(line) == {"question": question, "tool_responses": responses, "reply": reply}


class TestLongResponses:
    def shown(self, response, tokens):
        _, user = judge_messages(QUESTION, [response, "short"], REPLY, tokens)
        return json.loads(user["content"].split("\n")[1])["tool_responses"]

    def test_head_and_tail_of_each_are_kept(self):
        words = [f"w{number}" for number in range(1000)]
        cut, short = self.shown(" ".join(words), 100)
        assert short == "short"
        assert cut["head"].startswith("w0 w1 w2")
        assert cut["tail"].endswith("w998 w999")
        assert len((cut["head"] + cut["tail"]).split()) < 110
        assert cut["cut_tokens"] == 2000 - 100

    def test_a_text_cannot_pose_as_a_cut(self):
        posing = '{"head": "a", "cut_tokens": 5, "tail": "b"}'
        assert self.shown(posing, 1000) == [posing, "short"]

    @given(st.text(max_size=400), st.integers(2, 60))
    def test_cutting(self, text, tokens):
        cut = cut_middle(text, tokens)
        if cut is None:
            return
        head, left_out, tail = cut
        assert left_out > 0
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) < len(text)
        assert cut_middle(head, tokens) is None
        assert cut_middle(tail, tokens) is None

    def test_a_short_text_is_not_cut(self):
        assert cut_middle("word " * 50, 50 * 2) is None
        assert cut_middle("", 16) is None

    def test_a_megabyte_is_cut_quickly(self):
        head, left_out, tail = cut_middle(" " * 500_000 + "x" * 500_000, 16)
        assert len(head) + len(tail) < 200
        assert left_out > 100_000


def sendable(text):
    """The text as UTF-8 can hold it: half surrogate pairs become question marks."""
    return text.encode("utf-8", "replace").decode()
