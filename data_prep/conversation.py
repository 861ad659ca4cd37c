"""One typed dialogue between the readers of published layouts and the writers of training rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from data_prep.reasons import Unusable
from data_prep.tools import ToolList
from recipe_slca.tool_calls import ToolCall, parse, render

Role = Literal["user", "assistant", "tool"]
_TAG = re.compile(r"</?(?:tool_call|think|thinking)>")


class Message(NamedTuple):
    """One message.

    content: for an assistant, exactly what a policy would generate: reasoning, text and call block; for a
        tool, one response.
    calls: the calls that an assistant's content makes, in order; each has one tool message after it.
    """

    role: Role
    content: str
    calls: tuple[ToolCall, ...] = ()


@dataclass
class Conversation:
    """One source row: a dialogue over a list of tools.

    identity: the row's uuid, or a digest of its content; rows with the same identity share their split.
    system: the published system message where a layout has one in our format; None: we write our own.
    gold: steps of calls where the layout gives them apart from a dialogue, which then ends on its question;
        None: the dialogue's own calls are the gold.
    gold_has_arguments: False where the layout names the gold tools alone.
    provenance: fields of a released row's `extra_info`, kept as they are.
    evaluation_only: the row was published for evaluation and must not be trained on.
    """

    identity: str
    subset: str
    messages: list[Message]
    tools: ToolList
    system: str | None = None
    gold: list[list[ToolCall]] | None = None
    gold_has_arguments: bool = True
    provenance: dict[str, Any] = field(default_factory=dict)
    question_quality: float | None = None
    response_quality: float | None = None
    evaluation_only: bool = False


def compose_turn(reasoning: str, text: str, calls: Sequence[ToolCall]) -> Message:
    """An assistant message of `<think>` block, text and call block, those that are there.

    Raises `Unusable`: unreadable_calls when tags in the texts would hide the calls or make others,
    unparseable_arguments for numbers that JSON cannot hold.
    """
    try:
        block = render(calls) if calls else ""
    except (ValueError, TypeError) as error:
        raise Unusable("unparseable_arguments") from error
    parts = [f"<think>\n{reasoning}\n</think>" if reasoning else "", text, block]
    content = "\n".join([part for part in parts if part])
    if not _has_tag(reasoning) and not _has_tag(text):
        return Message("assistant", content, tuple(calls))
    message = read_turn(content)
    if message.calls != tuple(calls):
        raise Unusable("unreadable_calls")
    return message


def _has_tag(text: str) -> bool:
    return "<" in text and _TAG.search(text) is not None


def read_turn(content: str) -> Message:
    """An assistant message of text as a policy generates it. Raises `Unusable("unreadable_calls")`."""
    turn = parse(content)
    if turn.opening_tags != turn.closing_tags or any(block.error for block in turn.blocks):
        raise Unusable("unreadable_calls")
    return Message("assistant", content, tuple(turn.calls))
