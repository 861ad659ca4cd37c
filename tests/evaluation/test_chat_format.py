"""Messages with tools become the training text, and turns become messages with calls."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.conversation import compose_turn
from data_prep.rows import system_message
from data_prep.tools import read_tools
from recipe_slca.evaluation.chat_format import UnusableRequest, client_message, policy_messages
from recipe_slca.tool_calls import ToolCall, parse, render

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says it.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
words = st.text("abcd éü{}\"'[]:,\n", max_size=20).map(str.strip)
json_values = st.recursive(st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner, max_size=3))
calls = st.builds(
    ToolCall, st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.dictionaries(words, json_values, max_size=3)
)


def test_tools_come_first_in_the_system_message_then_the_clients_own():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    written = policy_messages(messages, [WEATHER])
    assert written == [
        {"role": "system", "content": f"{system_message(read_tools([WEATHER]).text)}\n\nBe brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_without_tools_nothing_is_added():
    messages = [{"role": "user", "content": "Hi"}]
    assert policy_messages(messages, None) == messages
    assert policy_messages(messages, []) == messages


@given(reasoning=words, text=words, made=st.lists(calls, max_size=3))
def test_a_turn_survives_the_way_to_the_client_and_back(reasoning, text, made):
    turn_text = compose_turn(reasoning, text, made).content
    message = client_message(parse(turn_text), turn_text)
    assert [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", [])] == [
        call.arguments for call in made
    ]
    assert policy_messages([message], None) == [{"role": "assistant", "content": turn_text}]


def test_a_turn_is_shown_as_it_was_written_where_it_is_known():
    turn_text = '<think>Oslo it is.</think><tool_call>{"name": "weather"}</tool_call>'
    message = client_message(parse(turn_text), turn_text)
    del message["reasoning_content"]
    known = {message["tool_calls"][0]["id"]: turn_text}
    assert policy_messages([message], None, known.get)[0]["content"] == turn_text
    assert policy_messages([message], None)[0]["content"] == render([ToolCall("weather")])


def test_observations_stay_tool_messages_with_their_call():
    messages = [
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "12 "}, {"text": "degrees"}]}
    ]
    assert policy_messages(messages, None) == [{"role": "tool", "content": "12 degrees", "tool_call_id": "a"}]


def test_a_malformed_block_is_shown_not_hidden():
    text = "<tool_call>\n[{'name': 'weather'}]\n</tool_call>"
    assert client_message(parse(text), text) == {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("messages", "tools", "part"),
    [
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], None, "not text"),
        ([{"role": "function", "content": "x"}], None, "role 'function'"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], None, "tool_calls"),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], None, "tool_calls"),
        ([{"role": "user", "content": "x"}], [{"type": "function"}], "tools: unparseable_tools"),
    ],
)
def test_what_has_no_equivalent_is_refused_by_name(messages, tools, part):
    with pytest.raises(UnusableRequest, match=part):
        policy_messages(messages, tools)
