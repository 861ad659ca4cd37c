"""Calls and content of an assistant turn, whole or while it is being written.

What a server's tool parser needs (`vllm_tool_parser` is ours for vLLM): which part of the text is content
for the user, and which calls are complete. The grammar is that of `tool_calls`.
"""

from dataclasses import dataclass

from recipe_slca.tool_calls import OPEN_TAG, ToolCall, parse


def split_turn(text: str) -> tuple[str, list[ToolCall]]:
    """The content and the calls of a whole turn.

    Content is the text before the first block, reasoning included where the server has not taken it out,
    followed by malformed blocks as written: nothing that the model wrote before or as a call gets lost. A
    turn without a call is content altogether.
    """
    turn = parse(text)
    if not turn.calls:
        return text, []
    malformed = [block.text for block in turn.blocks if block.error]
    return text[: _first_block(text)] + "".join(malformed), turn.calls


@dataclass(frozen=True)
class TurnDelta:
    """What one more piece of text brought: content to show, and calls that are complete now."""

    content: str
    calls: list[ToolCall]


class ToolCallStream:
    """Follows a turn while it is written; `read` the text so far as often as it grows.

    All deltas together hold the calls of `split_turn` and its content before the first block. A call comes
    whole, when its block closes. Malformed blocks are not shown: more text may still make them well-formed,
    as when a string argument holds `</tool_call>`.
    """

    def __init__(self) -> None:
        self._content_sent = 0
        self._calls_sent = 0

    def read(self, text: str) -> TurnDelta:
        """Read the text so far, which must start with what was read before."""
        first_block = _first_block(text)
        # The end may be the start of a tag.
        shown = first_block if first_block < len(text) else len(text) - _length_of_partial_tag(text)
        content = text[self._content_sent : shown]
        self._content_sent = max(self._content_sent, shown)
        calls = parse(text).calls
        fresh = calls[self._calls_sent :]
        self._calls_sent = max(self._calls_sent, len(calls))
        return TurnDelta(content, fresh)


def _first_block(text: str) -> int:
    """Where the first block starts: the first opening tag outside reasoning; the text's length without one."""
    at = text.find(OPEN_TAG)
    while at >= 0 and not parse(text[: at + len(OPEN_TAG)]).blocks:
        at = text.find(OPEN_TAG, at + 1)
    return at if at >= 0 else len(text)


def _length_of_partial_tag(text: str) -> int:
    return next((size for size in range(len(OPEN_TAG) - 1, 0, -1) if text.endswith(OPEN_TAG[:size])), 0)
