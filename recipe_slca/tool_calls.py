"""The `<tool_call>` text format: parse it, render it, set reasoning apart.

One grammar serves the rollout's tool parser, the process reward and the data preparation, so that a
call which was executed is exactly a call which is rewarded:

    <think>optional reasoning</think>
    <tool_call>
    [{"name": "weather-get", "arguments": {"city": "Oslo"}}, ...]
    </tool_call>

A block holds one call object or a non-empty list of them; a turn may hold several blocks. `parameters` is
read as `arguments`, and arguments may be an object or a JSON string of one. Blocks end where their JSON
ends, so a string argument may contain `</tool_call>`. Nothing inside reasoning is a call.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

OPEN_TAG = "<tool_call>"
CLOSE_TAG = "</tool_call>"
_TAG = re.compile(r"</?(?:tool_call|think|thinking)>")
_REASONING_TAG = re.compile(r"</?(?:think|thinking)>")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class ToolCall:
    """One call of a tool: its `name` as the model wrote it, and its `arguments` by name."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """One `<tool_call>` block.

    `calls` is empty exactly when `error` says why the block is malformed (one of `MALFORMED_REASONS`).
    `text` is the block as written, tags included.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class ParsedTurn:
    """What one assistant turn holds: `reasoning`, plain `content`, and its blocks in order.

    `opening_tags` and `closing_tags` count call tags outside reasoning and outside JSON strings; a turn
    with a stray closing tag has more of one than of the other.
    """

    reasoning: str
    content: str
    blocks: tuple[Block, ...]
    opening_tags: int
    closing_tags: int

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of all well-formed blocks, in the order written."""
        return [call for block in self.blocks for call in block.calls]


MALFORMED_REASONS = {
    "invalid_json": "the block does not start with a JSON value",
    "unclosed": "the block has no </tool_call>",
    "trailing_text": "there is text between the JSON and </tool_call>",
    "empty_list": "the block holds an empty list",
    "not_a_call": "a call must be an object",
    "missing_name": "a call needs a non-empty string `name`",
    "arguments_not_object": "`arguments` must be an object, or a JSON string of one",
}


class _Malformed(ValueError):
    """Carries one of `MALFORMED_REASONS` out of the block reader."""


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def loads(text: str) -> Any:
    """Read strict JSON (no NaN or Infinity), with every failure a `ValueError`, deep nesting included."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def parse(text: str) -> ParsedTurn:
    """Parse one assistant turn. Never raises: every malformed block comes back with its reason.

    Reasoning runs from `<think>` or `<thinking>` to the matching closing tag, or to the end of the text.
    A closing reasoning tag that was never opened closes reasoning that began in the prompt (templates of
    some reasoning models open it there): all text before it is reasoning.
    """
    pieces = _scan(text)
    blocks = tuple(piece.block for piece in pieces if piece.block)
    stray_closing_tags = sum(piece.kind == "closing" for piece in pieces)
    return ParsedTurn(
        reasoning="\n".join(_inside_tags(piece.text) for piece in pieces if piece.kind == "reasoning"),
        content="".join(piece.text for piece in pieces if piece.kind == "content").strip(),
        blocks=blocks,
        opening_tags=len(blocks),
        closing_tags=stray_closing_tags + sum(block.text.endswith(CLOSE_TAG) for block in blocks),
    )


def strip_reasoning(text: str) -> str:
    """The text without its reasoning; call blocks stay as written."""
    return "".join(piece.text for piece in _scan(text) if piece.kind != "reasoning").strip()


def render(calls: Iterable[ToolCall]) -> str:
    """Write calls as one block: the inverse of `parse`, whose `calls` give them back.

    Raises `ValueError` without calls or with arguments that JSON cannot hold, since such a block could
    not be read back.
    """
    listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
    if not listed:
        raise ValueError("render needs at least one call")
    return f"{OPEN_TAG}\n{_ENCODER.encode(listed)}\n{CLOSE_TAG}"


def read_call(value: Any) -> ToolCall:
    """Read one call from parsed JSON, in any of the accepted spellings.

    Raises `ValueError` with one of `MALFORMED_REASONS` as its message.
    """
    if not isinstance(value, dict):
        raise _Malformed("not_a_call")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise _Malformed("missing_name")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = loads(arguments)
        except ValueError as error:
            raise _Malformed("arguments_not_object") from error
    if not isinstance(arguments, dict):
        raise _Malformed("arguments_not_object")
    return ToolCall(name, arguments)


@dataclass(frozen=True)
class _Piece:
    """A stretch of a turn: `reasoning` (tags included), `content`, `block`, or a stray `closing` tag."""

    kind: str
    text: str
    block: Block | None = None


def _scan(text: str) -> list[_Piece]:
    """Cut a turn into pieces from left to right; their texts joined give the turn back."""
    pieces: list[_Piece] = []
    position = 0
    reasoning_seen = False
    while tag_match := _TAG.search(text, position):
        start, tag = tag_match.start(), tag_match.group()
        if start > position:
            pieces.append(_Piece("content", text[position:start]))
        position = tag_match.end()
        if tag == OPEN_TAG:
            block, position = _read_block(text, start)
            pieces.append(_Piece("block", block.text, block))
        elif tag == CLOSE_TAG:
            pieces.append(_Piece("closing", tag))
        elif not tag.startswith("</"):
            reasoning_seen = True
            end_tag = f"</{tag[1:]}"
            end = text.find(end_tag, position)
            position = len(text) if end < 0 else end + len(end_tag)
            pieces.append(_Piece("reasoning", text[start:position]))
        elif not reasoning_seen:
            reasoning_seen = True
            pieces = [_Piece("reasoning", text[:position])]
        else:
            pieces.append(_Piece("content", tag))
    if position < len(text):
        pieces.append(_Piece("content", text[position:]))
    return pieces


def _inside_tags(reasoning: str) -> str:
    return _REASONING_TAG.sub("", reasoning).strip()


def _read_block(text: str, start: int) -> tuple[Block, int]:
    """Read the block whose opening tag is at `start`; also return where reading goes on."""
    json_start = _SPACE.match(text, start + len(OPEN_TAG)).end()
    try:
        value, json_end = _DECODER.raw_decode(text, json_start)
    except (ValueError, RecursionError):
        return _malformed_block(text, start, json_start, "invalid_json")
    closing = _SPACE.match(text, json_end).end()
    if not text.startswith(CLOSE_TAG, closing):
        return _malformed_block(text, start, json_end, "trailing_text")
    end = closing + len(CLOSE_TAG)
    listed = value if isinstance(value, list) else [value]
    if not listed:
        return Block(text[start:end], error="empty_list"), end
    try:
        return Block(text[start:end], tuple(read_call(item) for item in listed)), end
    except _Malformed as error:
        return Block(text[start:end], error=str(error)), end


def _malformed_block(text: str, start: int, scan_from: int, reason: str) -> tuple[Block, int]:
    """A block without usable JSON ends at its closing tag, before the next opening tag, or with the text."""
    opening = text.find(OPEN_TAG, scan_from)
    end = opening if opening >= 0 else len(text)
    closing = text.find(CLOSE_TAG, scan_from, end)
    if closing >= 0:
        end = closing + len(CLOSE_TAG)
        return Block(text[start:end], error=reason), end
    return Block(text[start:end], error="unclosed"), end
