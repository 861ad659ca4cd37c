"""The proxy, as its own process, between the openai package and a real server of a scripted model."""

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest
from conftest import environment
from scripted_server import Reply

from data_prep.rows import system_message
from data_prep.tools import read_tools

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ASK = [{"role": "user", "content": "Oslo and Rome?"}]
TWO_CALLS = (
    "<think>Two cities.</think>\n"
    '<tool_call>\n[{"name": "weather", "arguments": {"city": "Oslo"}}, '
    '{"name": "weather", "arguments": {"city": "Rome"}}]\n'
)


class Proxied:
    """A client of a proxy before a scripted model; `counted` is what the proxy counted since `answer` was set."""

    def __init__(self, server, url):
        self.server = server
        self.chat = openai.OpenAI(base_url=url, api_key="none", max_retries=0).chat.completions.create
        self._counts_url = url.replace("/v1", "/counts")
        self._before = {}

    def answer(self, text, choice=None):
        self.server.script = lambda body: Reply(text(body) if callable(text) else text)
        self.server.choice = choice or {}
        self._before = self._counts()
        return self

    def ask(self, messages=ASK, **parameters):
        return self.chat(model="any", messages=messages, **parameters).choices[0]

    @property
    def counted(self):
        counts = self._counts()
        return {name: counts[name] - self._before.get(name, 0) for name in counts}

    def _counts(self):
        with urllib.request.urlopen(self._counts_url) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def start(text_server, start_proxy):
    def start(*arguments):
        server = text_server(lambda body: Reply())
        return Proxied(server, start_proxy("--base-url", server.url, "--model", "policy", *arguments))

    return start


@pytest.fixture(scope="module")
def proxied(start):
    return start()


def test_calls_come_out_as_tool_calls_and_the_model_sees_only_text(proxied):
    choice = proxied.answer(TWO_CALLS).ask(
        tools=[WEATHER], temperature=0.5, parallel_tool_calls=True, tool_choice="auto"
    )
    assert choice.finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in choice.message.tool_calls] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]
    assert choice.message.content is None
    assert choice.message.reasoning_content == "Two cities."
    seen = proxied.server.requests[-1]
    assert set(seen) == {"model", "messages", "max_tokens", "temperature", "stop"}
    assert (seen["model"], seen["temperature"], seen["stop"]) == ("policy", 0.5, ["</tool_call>"])
    assert seen["messages"] == [{"role": "system", "content": system_message(read_tools([WEATHER]).text)}, *ASK]
    counted = {name: count for name, count in proxied.counted.items() if count}
    assert counted == {"calls": 2, "requests": 1, "turns_with_calls": 1}


def test_the_model_sees_its_earlier_turn_as_it_wrote_it(proxied):
    asked = proxied.answer(TWO_CALLS).ask(tools=[WEATHER]).message
    turn = {"role": "assistant", "tool_calls": [call.model_dump() for call in asked.tool_calls]}
    answers = [{"role": "tool", "tool_call_id": call.id, "content": "3 degrees"} for call in asked.tool_calls]
    reply = proxied.answer("Cold.").ask([*ASK, turn, *answers], tools=[WEATHER])
    assert (reply.message.content, reply.message.tool_calls, reply.finish_reason) == ("Cold.", None, "stop")
    assert proxied.server.requests[-1]["messages"][2]["content"] == f"{TWO_CALLS}</tool_call>"


def test_a_malformed_block_is_content_and_is_counted(proxied):
    text = "<tool_call>\n[{'name': 'weather'}]\n</tool_call>"
    message = proxied.answer(text).ask(tools=[WEATHER]).message
    assert (message.content, message.tool_calls) == (text, None)
    assert proxied.counted["malformed_blocks/invalid_json"] == 1


@pytest.mark.parametrize(
    ("choice", "made"),
    [
        ({"finish_reason": "stop", "stop_reason": "</tool_call>"}, 2),
        ({"finish_reason": "stop", "stop_reason": None}, 0),
        ({"finish_reason": "length"}, 0),
    ],
)
def test_a_block_is_closed_only_where_generation_stopped_at_its_tag(proxied, choice, made):
    message = proxied.answer(TWO_CALLS, choice).ask(tools=[WEATHER]).message
    assert len(message.tool_calls or []) == made
    assert proxied.counted["turns_cut_at_max_tokens"] == (choice["finish_reason"] == "length")


def test_reasoning_that_the_server_set_apart_is_kept(proxied):
    choice = {"message": {"content": "Cold.", "reasoning": "Two cities."}}
    message = proxied.answer("", choice).ask(tools=[WEATHER]).message
    assert (message.content, message.reasoning_content) == ("Cold.", "Two cities.")


def test_turns_of_several_blocks_are_not_stopped_where_told_so(start):
    proxied = start("--no-stop-at-tool-call").answer(f"{TWO_CALLS}</tool_call>" * 2)
    assert len(proxied.ask(tools=[WEATHER], stop="END").message.tool_calls) == 4
    assert proxied.server.requests[-1]["stop"] == ["END"]


def test_without_tools_text_stays_text(proxied):
    proxied.answer("<think>Hm.</think>No tools: <b>none</b>.")
    assert proxied.ask(max_completion_tokens=99).message.content == "No tools: <b>none</b>."
    assert proxied.server.requests[-1] == {"model": "policy", "messages": ASK, "max_tokens": 99}
    proxied.ask(tools=[WEATHER], tool_choice="none", max_tokens=99)
    assert proxied.server.requests[-1] == {"model": "policy", "messages": ASK, "max_tokens": 99}


@pytest.mark.parametrize(
    ("extra", "part"),
    [({"stream": True}, "stream"), ({"n": 2}, "n: one"), ({"messages": []}, "messages"), ({"tools": [{}]}, "tools")],
)
def test_what_it_does_not_offer_is_refused(proxied, extra, part):
    proxied.answer("x")
    with pytest.raises(openai.BadRequestError, match=part):
        proxied.chat(**{"model": "any", "messages": ASK, **extra})
    assert proxied.counted["refused_requests"] == 1


def test_a_server_that_fails_later_is_reported_with_its_own_words(proxied):
    proxied.answer("x")
    proxied.server.script = lambda body: Reply("out of memory", status=503)
    with pytest.raises(openai.InternalServerError, match="/v1/chat/completions answered 503.*out of memory"):
        proxied.ask()
    assert proxied.counted["failed_requests"] == 1


def check(*arguments, **variables):
    command = [sys.executable, "-m", "recipe_slca.evaluation.chat_proxy", "--model", "policy", *arguments]
    return subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=180)


def test_check_sends_the_key_and_passes(text_server):
    server = text_server(lambda body: Reply())
    done = check("--base-url", server.url, "--check", "--api-key-env", "POLICY_KEY", POLICY_KEY="sesame")
    assert (done.returncode, done.stderr) == (0, "")
    assert server.authorizations[-1] == "Bearer sesame"


def test_check_names_what_is_wrong(text_server):
    web_page = text_server(lambda body: Reply(fault="garbage", headers={"content-type": "text/html"})).url
    for base_url, said in [
        ("http://127.0.0.1:9/v1", "cannot be reached"),
        ("no-scheme", "cannot be reached"),
        (web_page, "answered with text/html, not with a chat completion"),
        (web_page + "1", "answered 404"),
    ]:
        done = check("--base-url", base_url, "--check")
        assert done.returncode == 1
        assert said in done.stderr and base_url in done.stderr
    missing_key = check("--base-url", "http://127.0.0.1:9/v1", "--check", "--api-key-env", "NO_SUCH_KEY")
    assert missing_key.returncode == 1 and "NO_SUCH_KEY" in missing_key.stderr


def test_a_web_server_is_named_in_one_line():
    """As the last line of a log, which the scripts show."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = check("--base-url", f"http://127.0.0.1:{server.server_port}", "--check")
        server.shutdown()
    (said,) = done.stderr.splitlines()
    assert done.returncode == 1 and "answered 501: <!DOCTYPE" in said and "usually ends in /v1" in said


def test_a_port_in_use_is_named(text_server):
    server = text_server(lambda body: Reply())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = check("--base-url", server.url, "--port", port)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr and "--port" in done.stderr
