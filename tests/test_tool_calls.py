"""The `<tool_call>` text format: what is a call, what is malformed and why, and that reading undoes writing."""

import json
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe_slca.tool_calls import MALFORMED_REASONS, ToolCall, loads, parse, read_call, render, strip_reasoning

FRAGMENTS = [
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<thinking>", "</thinking>", "<tool_call", "</"),
    *('{"name": "a", "arguments": {}}', '[{"name": "b"}]', '{"name": ', "[", "]", "{", "}", '"', "\\", ",", "null"),
    *("NaN", "1e999", "text", " ", "\n", "<", "é", "\ud800", "\x00"),
]
TAG_SOUP = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=14).map("".join)
STRINGS = st.text(st.characters(codec=None), max_size=12) | TAG_SOUP
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)
CALLS = st.builds(ToolCall, STRINGS.filter(bool), st.dictionaries(STRINGS, VALUES, max_size=4))
REASONING = STRINGS.filter(lambda text: "</think" not in text)


def block(value: object) -> str:
    return f"<tool_call>{json.dumps(value)}</tool_call>"


# Reading undoes writing.


@settings(deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=4))
def test_parse_gives_back_what_render_wrote(calls: list[ToolCall]):
    turn = parse(render(calls))
    assert turn.calls == calls
    assert [block.error for block in turn.blocks] == [None]
    assert (turn.reasoning, turn.content, turn.opening_tags, turn.closing_tags) == ("", "", 1, 1)


@settings(deadline=None)
@given(st.lists(st.lists(CALLS, min_size=1, max_size=2), max_size=3), REASONING)
def test_blocks_keep_their_order_among_reasoning_and_content(blocks: list[list[ToolCall]], reasoning: str):
    text = f"<think>{reasoning}</think>before" + "\nbetween\n".join(map(render, blocks)) + "after"
    turn = parse(text)
    assert turn.calls == [call for calls in blocks for call in calls]
    assert turn.opening_tags == turn.closing_tags == len(blocks)
    assert turn.content.startswith("before") and turn.content.endswith("after")


@pytest.mark.parametrize(
    "argument",
    [
        *("</tool_call>", "<tool_call>", "<think>", "</think>", 'a "quoted" word', "two\nlines", "back\\slash"),
        *("\ud83d alone", "日本語 ☂", "\u2028", "\x00", "{{ template }} {0} %s", "<|im_end|>"),
    ],
)
def test_arguments_may_hold_any_text(argument: str):
    calls = [ToolCall("say", {"text": argument, argument: [argument]})]
    assert parse(f"I call.\n{render(calls)}\nDone.").calls == calls


@pytest.mark.parametrize("calls", [[], [ToolCall("a", {"x": math.nan})], [ToolCall("a", {"x": -math.inf})]])
def test_render_refuses_what_could_not_be_read_back(calls: list[ToolCall]):
    with pytest.raises(ValueError):
        render(calls)


# The accepted spellings.

CALL = {"name": "weather-get", "arguments": {"city": "Oslo", "days": 3}}
READ = ToolCall("weather-get", {"city": "Oslo", "days": 3})


@pytest.mark.parametrize(
    ("value", "calls"),
    [
        (CALL, [READ]),
        ([CALL], [READ]),
        ([CALL, CALL], [READ, READ]),
        ({"name": "weather-get", "parameters": CALL["arguments"]}, [READ]),
        ({"name": "weather-get", "arguments": json.dumps(CALL["arguments"])}, [READ]),
        ({"name": "weather-get", "parameters": json.dumps(CALL["arguments"])}, [READ]),
        ({"name": "weather-get"}, [ToolCall("weather-get")]),
        ({"name": "weather-get", "arguments": {}}, [ToolCall("weather-get")]),
        ({"name": "weather-get", "arguments": "{}"}, [ToolCall("weather-get")]),
        ({"name": "weather-get", "arguments": {"a": 1}, "parameters": {"b": 2}}, [ToolCall("weather-get", {"a": 1})]),
        ({**CALL, "id": "call_1", "type": "function"}, [READ]),
    ],
)
def test_spellings_of_a_block(value: object, calls: list[ToolCall]):
    assert parse(block(value)).calls == calls
    assert parse(f"<tool_call>\n\n {json.dumps(value, indent=2)} \t\n</tool_call>").calls == calls


def test_several_blocks_in_a_turn():
    turn = parse(f"First {block(CALL)} then {block([CALL, CALL])}.")
    assert [len(block.calls) for block in turn.blocks] == [1, 2]
    assert turn.content == "First  then ."
    assert turn.blocks[0].text == block(CALL)


# Reasoning holds no calls.


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "calls"),
    [
        (f"<think>maybe {block(CALL)}</think>No.", f"maybe {block(CALL)}", "No.", 0),
        (f"<thinking>maybe {block(CALL)}</thinking>No.", f"maybe {block(CALL)}", "No.", 0),
        (f"<think>maybe {block(CALL)}", f"maybe {block(CALL)}", "", 0),
        (f"<thinking>maybe {block(CALL)}</think>", f"maybe {block(CALL)}", "", 0),
        (
            f"begun in the prompt {block(CALL)}</think>Yes.{block(CALL)}",
            f"begun in the prompt {block(CALL)}",
            "Yes.",
            1,
        ),
        (f"<think>one</think>a{block(CALL)}<think>two</think>b", "one\ntwo", "ab", 1),
        (f"<think>one</think>a</think>{block(CALL)}", "one", "a</think>", 1),
        ("<think></think>", "", "", 0),
        (f"Hi <think>{block(CALL)}</think>{block(CALL)}", block(CALL), "Hi", 1),
        ("no reasoning", "", "no reasoning", 0),
        ("", "", "", 0),
    ],
)
def test_reasoning_is_set_apart(text: str, reasoning: str, content: str, calls: int):
    turn = parse(text)
    assert (turn.reasoning, turn.content, len(turn.calls)) == (reasoning, content, calls)
    assert turn.opening_tags == turn.closing_tags == calls


@settings(deadline=None)
@given(REASONING, st.lists(CALLS, min_size=1, max_size=2))
def test_whatever_stands_in_reasoning_is_no_call(reasoning: str, calls: list[ToolCall]):
    assert parse(f"<think>{reasoning}{render(calls)}".replace("</think", "< think")).calls == []


@pytest.mark.parametrize(
    ("text", "stripped"),
    [
        (f"<think>a</think>\nSee {block(CALL)} now", f"See {block(CALL)} now"),
        ("a</think> b", "b"),
        ("b <think> a", "b"),
        ("<tool_call>{broken</tool_call>", "<tool_call>{broken</tool_call>"),
        ("stray </tool_call>", "stray </tool_call>"),
    ],
)
def test_strip_reasoning_leaves_blocks_as_written(text: str, stripped: str):
    assert strip_reasoning(text) == stripped


def test_reasoning_tags_in_an_argument_are_text():
    said = [ToolCall("say", {"text": "<think>x</think>"})]
    assert strip_reasoning(f"<think>a</think>{render(said)}") == render(said)
    assert parse(render(said)).calls == said


# Malformed blocks come back with their reason.

MALFORMED = {
    "invalid_json": [
        *("<tool_call>{broken}</tool_call>", "<tool_call></tool_call>", "<tool_call>weather()</tool_call>"),
        *('<tool_call>{"name": NaN}</tool_call>', "<tool_call>'a'</tool_call>"),
    ],
    "unclosed": [f"<tool_call>{json.dumps(CALL)}", "<tool_call>", "<tool_call>{", "<tool_call>[1, 2"],
    "trailing_text": [
        f"<tool_call>{json.dumps(CALL)} and so on</tool_call>",
        f"<tool_call>{json.dumps(CALL)}{json.dumps(CALL)}</tool_call>",
    ],
    "empty_list": ["<tool_call>[]</tool_call>"],
    "not_a_call": [block(3), block("weather"), block([CALL, "weather"]), block([[CALL]]), block(None)],
    "missing_name": [block({"arguments": {}}), block({"name": ""}), block({"name": 7}), block({"name": None})],
    "arguments_not_object": [
        *(block({"name": "a", "arguments": value}) for value in ([], 3, None, "text", "[1]", '"{}"', "{broken")),
    ],
}


def test_every_reason_has_an_example():
    assert set(MALFORMED) == set(MALFORMED_REASONS)


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in MALFORMED.items() for text in texts])
def test_malformed_blocks_say_why(reason: str, text: str):
    (found,) = parse(text).blocks
    assert (found.error, found.calls, found.text) == (reason, (), text)


@pytest.mark.parametrize(("reason", "text"), [(reason, texts[0]) for reason, texts in MALFORMED.items()])
def test_a_malformed_block_does_not_hide_the_next_one(reason: str, text: str):
    first, second = parse(f"{text}\n{block(CALL)}").blocks
    assert first.error == reason
    assert second.calls == (READ,)


def test_one_bad_call_voids_its_block_and_no_other():
    turn = parse(block([CALL, {"name": ""}]) + block(CALL))
    assert [block.error for block in turn.blocks] == ["missing_name", None]
    assert turn.calls == [READ]


@pytest.mark.parametrize("value", [3, {"name": ""}, {"name": "a", "arguments": []}])
def test_read_call_raises_the_reason(value: object):
    with pytest.raises(ValueError) as raised:
        read_call(value)
    assert str(raised.value) in MALFORMED_REASONS


# Tags are counted outside reasoning and outside JSON.


@pytest.mark.parametrize(
    ("text", "opening", "closing"),
    [
        ("", 0, 0),
        (block(CALL), 1, 1),
        (block(CALL) * 3, 3, 3),
        (f"<tool_call>{json.dumps(CALL)}", 1, 0),
        (f"{block(CALL)}</tool_call>", 1, 2),
        ("</tool_call></tool_call>", 0, 2),
        ("<tool_call><tool_call>", 2, 0),
        (f"<think>{block(CALL)}</think>", 0, 0),
        (block({"name": "a", "arguments": {"x": "<tool_call></tool_call></tool_call>"}}), 1, 1),
    ],
)
def test_tag_counts(text: str, opening: int, closing: int):
    turn = parse(text)
    assert (turn.opening_tags, turn.closing_tags) == (opening, closing)


# Any text at all.


@settings(deadline=None, max_examples=500)
@given(TAG_SOUP)
def test_no_text_makes_it_raise(text: str):
    turn = parse(text)
    assert turn.opening_tags == len(turn.blocks)
    for found in turn.blocks:
        assert found.text in text
        assert bool(found.calls) == (found.error is None)
        assert found.error is None or found.error in MALFORMED_REASONS
    assert all(call.name and isinstance(call.arguments, dict) for call in turn.calls)


@settings(deadline=None, max_examples=300)
@given(TAG_SOUP)
def test_what_was_read_can_be_written_and_read_again(text: str):
    calls = [call for call in parse(text).calls if "1e999" not in text]
    if calls:
        assert parse(render(calls)).calls == calls


@settings(deadline=None, max_examples=300)
@given(TAG_SOUP)
def test_stripping_reasoning_keeps_every_block(text: str):
    stripped = strip_reasoning(text)
    position = 0
    for found in parse(text).blocks:
        position = stripped.index(found.text.rstrip(), position) + len(found.text.rstrip())


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ("[", ""), ('[{"name":', "")])
def test_deep_nesting_is_no_trap(opening: str, closing: str):
    (found,) = parse(f"<tool_call>{opening * 100_000}{closing * 100_000}</tool_call>").blocks
    assert found.error == "invalid_json"


@pytest.mark.parametrize(
    "repeated", ["<tool_call>", "<tool_call>[", "</tool_call>", "<think>", "</think>", '<tool_call>{"']
)
def test_a_tag_repeated_for_a_whole_response_is_no_trap(repeated: str):
    """As a policy does that got stuck: reading it takes time in proportion, not in its square."""
    started = time.process_time()
    assert parse(repeated * 8192).calls == []
    assert time.process_time() - started < 5


def test_a_megabyte_of_text_is_no_trap():
    parse("<" * 1_000_000)
    parse("<tool_call>" + " " * 1_000_000)
    parse(f"<tool_call>{json.dumps('x' * 1_000_000)}")


def test_strict_json():
    assert loads('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    for text in ("NaN", "-Infinity", "{", "[1] 2", "", "[" * 100_000):
        with pytest.raises(ValueError):
            loads(text)
