"""Dialogues that are already text: calls in `<tool_call>`, responses in `<tool_response>`, tools in `<tools>`."""

import re
from collections.abc import Iterator, Sequence

from data_prep.conversation import Message, read_turn
from data_prep.json_text import loads_json_or_literal
from data_prep.reasons import Unusable
from data_prep.tools import ToolList, ToolReader
from recipe_slca import tool_calls

_KIMI_TOOLS = re.compile(r"<\|im_system\|>tool_declare<\|im_middle\|>(.*?)<\|im_end\|>", re.DOTALL)
_OPEN, _CLOSE = "<tool_response>", "</tool_response>"


def declared_tools(system: str, tool_reader: ToolReader) -> ToolList | None:
    """The tools that a system message declares, None when it declares none that can be read.

    In Kimi's declaration a JSON list; inside `<tools>` one schema a line, or one object, or one list, each as
    JSON or as a Python literal.
    """
    for listed in _declarations(system):
        for readings in (_whole, _by_line):
            try:
                return tool_reader.read(readings(listed))
            except (Unusable, ValueError):
                continue
    return None


def read_turns(turns: Sequence[tuple[str, str]]) -> list[Message]:
    """Messages of (role, text) pairs; a user message of nothing but tool responses becomes tool messages.

    Raises `Unusable`: unparseable_messages for an unknown role, unreadable_calls.
    """
    messages: list[Message] = []
    for role, text in turns:
        if role == "assistant":
            messages.append(_assistant(text))
        elif role == "tool":
            messages.append(Message("tool", text))
        elif role == "user":
            responses = split_responses(text)
            messages += [Message("tool", response) for response in responses] or [Message("user", text)]
        else:
            raise Unusable("unparseable_messages")
    return messages


def split_responses(text: str) -> list[str]:
    """The responses of a text that is nothing but `<tool_response>` blocks; empty for any other text."""
    *blocks, rest = text.split(_CLOSE)
    blocks = [block.lstrip() for block in blocks]
    if rest.strip() or not all(block.startswith(_OPEN) for block in blocks):
        return []
    return [block.removeprefix(_OPEN).removeprefix("\n").removesuffix("\n") for block in blocks]


def _assistant(text: str) -> Message:
    if tool_calls.OPEN_TAG in text:
        for block in tool_calls.parse(text).blocks:
            if block.error == "invalid_json":
                text = text.replace(block.text, _as_json(block.text))
    return read_turn(text)


def _as_json(block: str) -> str:
    """A call block with a Python literal inside, written anew; the block itself when that is not what it holds."""
    inside = block.removeprefix(tool_calls.OPEN_TAG).removesuffix(tool_calls.CLOSE_TAG)
    try:
        value = loads_json_or_literal(inside)
        listed = value if isinstance(value, list) else [value]
        return tool_calls.render([tool_calls.read_call(call) for call in listed])
    except (ValueError, TypeError):
        return block


def _declarations(system: str) -> Iterator[str]:
    """The texts that may hold the tools; instructions can name the tag in passing, so the last one comes first."""
    if match := _KIMI_TOOLS.search(system):
        yield match.group(1)
    end = system.rfind("</tools>")
    while (start := system.rfind("<tools>", 0, max(end, 0))) >= 0:
        yield system[start + len("<tools>") : end].strip()
        end = start


def _whole(listed: str) -> object:
    return loads_json_or_literal(listed)


def _by_line(listed: str) -> object:
    return [loads_json_or_literal(line) for line in listed.splitlines() if line.strip()]
