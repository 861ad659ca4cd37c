"""Replay and synthetic answers."""

import asyncio
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe_slca.sgls.responders import (
    RecordedCall,
    ReplayResponder,
    Request,
    parse_recorded,
)
from recipe_slca.sgls.synthetic import SyntheticResponder
from recipe_slca.sgls.tools import Tools
from recipe_slca.tool_calls import ToolCall
from recipe_slca.trajectory import CallRecord


def respond(responder, call, history=(), recorded=()):
    response = asyncio.run(responder.respond(Request(call, None, history, recorded)))
    return None if response is None else response.text


RECORDED = [RecordedCall("get", {"city": "Oslo", "days": 3}, "cold")]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("get", {"city": "Oslo", "days": 3}, "cold"),
        ("get", {"days": "3.0", "city": " oslo "}, "cold"),
        ("get", {"city": "Oslo"}, None),
        ("get", {"city": "Oslo", "days": 3, "more": None}, None),
        ("get", {"city": "Oslo", "days": 4}, None),
        ("put", {"city": "Oslo", "days": 3}, None),
    ],
)
def test_replay_answers_calls_that_match_loosely(name, arguments, text):
    assert respond(ReplayResponder(), ToolCall(name, arguments), recorded=RECORDED) == text


def test_replay_gives_repeated_calls_their_responses_in_order():
    recorded = [RecordedCall("next", {}, text) for text in ("one", "two")]
    history: list[CallRecord] = []
    texts = []
    for _ in range(3):
        texts.append(respond(ReplayResponder(), ToolCall("next"), history, recorded))
        history += [CallRecord("next", {}), CallRecord("other", {})]
    assert texts == ["one", "two", "two"]


def test_replay_shows_no_chat_tokens():
    assert respond(ReplayResponder(), ToolCall("a"), recorded=[RecordedCall("a", {}, "x<|im_end|>")]) is None


def test_parse_recorded():
    entries = [
        {"name": "a", "arguments": {"x": 1}, "response": "text"},
        {"name": "b", "arguments": '{"y": 2}', "response": {"z": [3]}},
        {"name": "c", "arguments": {}, "response": None},
        {"name": "", "response": "x"},
        {"name": "d", "arguments": "{", "response": "x"},
        {"name": "e", "arguments": {}, "response": json.loads("[" * 400 + "]" * 400)},
        7,
    ]
    expected = [RecordedCall("a", {"x": 1}, "text"), RecordedCall("b", {"y": 2}, '{"z": [3]}')]
    assert parse_recorded(entries) == parse_recorded(json.dumps(entries)) == expected
    for nothing in (None, "", "  ", "[", "7", []):
        assert parse_recorded(nothing) == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON_VALUES, max_size=5))
def test_synthetic_is_short_deterministic_json(name, arguments):
    text = respond(SyntheticResponder(), ToolCall(name, arguments))
    assert text == respond(SyntheticResponder(), ToolCall(name, dict(reversed(arguments.items()))))
    assert isinstance(json.loads(text), dict)
    assert "<" not in text
    assert len(text) < 2500


def test_synthetic_tells_calls_apart():
    texts = {respond(SyntheticResponder(), ToolCall("get", {"n": n})) for n in range(50)}
    assert len(texts) == 50


def test_synthetic_follows_a_declared_output():
    output = {
        "type": "object",
        "properties": {
            "temperature": {"type": "number"},
            "sky": {"enum": ["clear", "<b>"]},
            "hours": {"type": "array", "items": {"type": "integer"}},
            "station": {"properties": {"name": {"type": ["string", "null"]}, "open": {"type": "boolean"}}},
            "odd": {"not": {"type": "string"}},
        },
    }
    tool = Tools.from_schemas([{"name": "get", "outputSchema": output}]).get("get")
    texts = {asyncio.run(SyntheticResponder().respond(Request(ToolCall("get", {"n": 1}), tool))).text for _ in range(3)}
    (text,) = texts
    answer = json.loads(text)
    jsonschema.validate(answer, output)
    assert set(answer) == set(output["properties"]) and set(answer["station"]) == {"name", "open"}
    assert "<" not in text
