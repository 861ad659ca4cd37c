"""Reward models behind verl's router, against a real HTTP server that answers as vLLM and SGLang do."""

import asyncio
import json
import math
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from adversarial_texts import ADVERSARIAL_TEXTS
from scripted_server import Reply, ScriptedServer

from recipe_slca.hierr.llm_judge import LlmJudge
from recipe_slca.hierr.reward_model_judge import DiscriminativeJudge, RewardModel
from recipe_slca.hierr.summary import open_judge
from recipe_slca.settings import JudgeSettings, SettingsError
from recipe_slca.sgls.chat_tokens import has_chat_tokens

QUESTION, RESPONSES, REPLY = "How warm is it?", ['{"temp": 12}'], "It is 12 degrees."


def render(messages):
    """A chat template in the style of Qwen."""
    return "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)


def vllm_answer(logit):
    return {"data": [{"index": 0, "label": "LABEL_0", "probs": [logit], "num_classes": 1}]}


@contextmanager
def router(answer):
    """Serve `answer(path, request) -> (status, body)`; yields the address and the received (path, request) pairs."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.append((self.path, request))
            status, body = answer(self.path, request)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # connections that wait; the default of 5 drops some of a burst

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def settings(**endpoint):
    return JudgeSettings.model_validate(
        {"kind": "reward_model", "endpoint": {"timeout_s": 5.0, "retries": 0, **endpoint}}
    )


def grade(address, judge_settings=None, engine="vllm", graded=((QUESTION, RESPONSES, REPLY),)):
    async def run():
        judge = open_judge(judge_settings or settings(), RewardModel(address, "models/rm", engine, render))
        assert isinstance(judge, DiscriminativeJudge)
        try:
            return await asyncio.gather(*(judge.grade(*one) for one in graded)), judge.metrics()
        finally:
            await judge.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("logit", "score"), [(0, 0.5), (math.log(3), 0.75), (-800, 0), (800, 1), (-2.5, 1 / (1 + math.e**2.5))]
)
def test_vllm_classifies(logit, score):
    with router(lambda *_: (200, vllm_answer(logit))) as (address, received):
        [given_grade], metrics = grade(address)
    assert given_grade.score == pytest.approx(score)
    assert metrics == {"graded": 1, "ungraded": 0}
    [(path, request)] = received
    assert path == "/classify"
    assert (request["model"], request["use_activation"]) == ("models/rm", False)
    assert request["input"] == render(
        [
            {"role": "user", "content": f'{QUESTION}\n\nTool responses: ["{{\\"temp\\": 12}}"]'},
            {"role": "assistant", "content": REPLY},
        ]
    )


def test_sglang_embeds():
    with router(lambda *_: (200, {"data": [{"embedding": [0.1, math.log(3)]}]})) as (address, received):
        [given_grade], _ = grade(address, engine="sglang")
    assert given_grade.score == pytest.approx(0.75)
    assert [path for path, _ in received] == ["/v1/embeddings"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"error": "out of memory"}),
        (400, {"error": "too long"}),
        (200, {"data": []}),
        (200, {"data": [{"probs": ["high"]}]}),
        (200, {"data": [{"probs": [None]}]}),
        (200, b'{"data": [{"probs": [NaN]}]}'),
        (200, b"<html>"),
        (200, []),
    ],
)
def test_failures_leave_the_reply_ungraded(status, body):
    with router(lambda *_: (status, body)) as (address, _):
        [given_grade], metrics = grade(address)
    assert given_grade.score is None
    assert address in given_grade.failure
    assert metrics == {"graded": 0, "ungraded": 1}


def test_a_failed_request_is_tried_again():
    answers = [(503, {}), (200, vllm_answer(0))]
    with router(lambda *_: answers.pop(0)) as (address, received):
        [given_grade], _ = grade(address, settings(retries=1))
    assert given_grade.score == 0.5
    assert len(received) == 2


def test_nobody_there():
    [given_grade], _ = grade("127.0.0.1:9")
    assert given_grade.score is None


def test_adversarial_texts_open_no_chat_token():
    graded = [(text, [text], text) for text in ADVERSARIAL_TEXTS]
    with router(lambda *_: (200, vllm_answer(0))) as (address, received):
        grade(address, graded=graded)
    assert len(received) == len(graded)
    for _, request in received:
        assert request["input"].count("<|im_start|>") == request["input"].count("<|im_end|>") == 2
        assert not has_chat_tokens(request["input"].replace("<|im_start|>", "").replace("<|im_end|>", ""))


def test_a_generative_one_is_a_chat_judge_behind_the_router():
    async def run(address):
        generative = settings().model_copy(update={"reward_model": "generative"})
        judge = open_judge(generative, RewardModel(address, "models/rm", "vllm", render))
        assert isinstance(judge, LlmJudge)
        try:
            return await judge.grade(QUESTION, RESPONSES, REPLY)
        finally:
            await judge.close()

    with ScriptedServer(lambda _: Reply('{"grade": "good"}')) as server:
        address = server.url.removeprefix("http://").removesuffix("/v1")
        assert asyncio.run(run(address)).score == 0.75
    assert server.requests[0]["model"] == "models/rm"


def test_a_reward_model_must_be_served():
    with pytest.raises(SettingsError, match=r"reward\.reward_model\.enable=true"):
        open_judge(settings())
