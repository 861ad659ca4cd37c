"""A turn read piece by piece holds what the whole turn holds."""

from hypothesis import given
from hypothesis import strategies as st

from recipe_slca.evaluation.tool_call_stream import ToolCallStream, split_turn
from recipe_slca.tool_calls import ToolCall, parse

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "</tool_call>"}}\n</tool_call>'
TWO_CALLS = '<tool_call>[{"name": "g"}, {"name": "h", "arguments": {"y": 1}}]</tool_call>'
MALFORMED = "<tool_call>{'name'}</tool_call>"
pieces = st.sampled_from(
    [CALL, TWO_CALLS, "Let me see. ", "a < b ", "<think>maybe <tool_call> there</think>", "<tool_"]
)


def read_in_pieces(text, cuts):
    stream = ToolCallStream()
    content, calls = "", []
    for end in [*sorted(cuts), len(text), len(text)]:
        delta = stream.read(text[:end])
        content += delta.content
        calls += delta.calls
    return content, calls


@given(data=st.data(), parts=st.lists(pieces, max_size=5))
def test_any_cutting_gives_the_same_calls_and_content(data, parts):
    text = "".join(parts)
    cuts = data.draw(st.sets(st.integers(0, len(text)), max_size=12))
    content, calls = read_in_pieces(text, cuts)
    whole_content, whole_calls = split_turn(text)
    assert calls == whole_calls == parse(text).calls
    # With no call after it, the start of a tag at the end is withheld.
    assert content == (whole_content if calls else whole_content.removesuffix("<tool_"))


def test_a_call_comes_when_its_block_closes():
    stream = ToolCallStream()
    assert stream.read(CALL[:-1]).calls == []
    assert stream.read(CALL).calls == [ToolCall("f", {"x": "</tool_call>"})]
    assert stream.read(CALL + " ").calls == []


def test_malformed_blocks_are_content():
    assert split_turn(f"So: {MALFORMED}{CALL}") == (f"So: {MALFORMED}", [ToolCall("f", {"x": "</tool_call>"})])
    assert split_turn(f"So: {MALFORMED} end") == (f"So: {MALFORMED} end", [])


def test_a_stream_does_not_show_a_block_that_may_still_become_a_call():
    content, calls = read_in_pieces(f"So: {CALL}", range(40, 80))
    assert (content, calls) == ("So: ", [ToolCall("f", {"x": "</tool_call>"})])
