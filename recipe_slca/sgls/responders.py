"""Who answers a valid call. A responder returns the answer's text, or None when the call is not its to answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from recipe_slca.hierr.values import loosely_equal
from recipe_slca.sgls.chat_tokens import has_chat_tokens
from recipe_slca.sgls.schema_validator import deeper_than
from recipe_slca.sgls.tools import MAX_DEPTH, ToolSchema
from recipe_slca.tool_calls import ToolCall, loads, read_call
from recipe_slca.trajectory import CallRecord


@dataclass(frozen=True)
class RecordedCall:
    """A call of the row's source trajectory and the response it got there."""

    name: str
    arguments: dict[str, Any]
    response: str


@dataclass(frozen=True)
class Request:
    """One call to answer.

    tool: its schema; None when the row offers no such tool (only without schema guidance).
    history: the earlier calls of this rollout with their observations. recorded: the row's recorded calls.
    """

    call: ToolCall
    tool: ToolSchema | None
    history: Sequence[CallRecord] = ()
    recorded: Sequence[RecordedCall] = ()


@dataclass(frozen=True)
class Response:
    """The text of an answer; `cached` when it came out of the cache."""

    text: str
    cached: bool = False


class Responder(Protocol):
    """Answers calls. `name` becomes the `source` of the observation."""

    name: str

    async def respond(self, request: Request) -> Response | None:
        """The response, or None: not mine. Raises `EndpointFailure` when the answer could not be had."""
        ...


class ReplayResponder:
    """Answers a call that the row's source trajectory also made with what it got there.

    Arguments match when their names are the same and every value is loosely equal (METHOD 3). A call that
    was recorded several times is answered in the recorded order, and its last response is repeated.
    """

    name = "replay"

    async def respond(self, request: Request) -> Response | None:
        call = request.call
        matching = [
            recorded.response
            for recorded in request.recorded
            if _same_call(recorded, call) and not has_chat_tokens(recorded.response)
        ]
        if not matching:
            return None
        earlier = sum(_same_call(record, call) for record in request.history) if len(matching) > 1 else 0
        return Response(matching[min(earlier, len(matching) - 1)])


def parse_recorded(recorded: Any) -> list[RecordedCall]:
    """Read `extra_info.recorded_calls`: a list of `{"name", "arguments", "response"}`, or JSON text of one.

    Entries that cannot be read are left out: they could never match a call.
    """
    if isinstance(recorded, str):
        try:
            recorded = loads(recorded) if recorded.strip() else []
        except ValueError:
            return []
    if not isinstance(recorded, Sequence):
        return []
    return [entry for item in recorded if (entry := _read_recorded(item))]


def _read_recorded(item: Any) -> RecordedCall | None:
    try:
        call = read_call(item)
    except ValueError:
        return None
    response = item.get("response")
    if response is None or deeper_than(item, MAX_DEPTH):
        return None
    text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    return RecordedCall(call.name, call.arguments, text)


def _same_call(left: RecordedCall | CallRecord, call: ToolCall) -> bool:
    return (
        left.name == call.name
        and left.arguments.keys() == call.arguments.keys()
        and all(loosely_equal(value, call.arguments[name]) for name, value in left.arguments.items())
    )
