"""Chat messages with tools, as any OpenAI client sends them, in the text that the policy was trained on, and back.

Training shows tools in the system message and calls as text (`tool_calls` has the grammar); a client speaks
of `tools` and `tool_calls`. `policy_messages` and `client_message` translate; `chat_proxy` serves them, and
the exported chat template (`export`) writes the same text.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from data_prep.reasons import Unusable
from data_prep.rows import system_message
from data_prep.tools import read_tools
from recipe_slca.tool_calls import ParsedTurn, ToolCall, read_call, render


class UnusableRequest(ValueError):
    """A chat request that has no equivalent in the policy's text format; the message says which part."""


def policy_messages(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    turn_as_written: Callable[[str], str | None] = lambda call_id: None,
) -> list[dict[str, str]]:
    """Write a client's messages and tools as plain chat messages.

    The system message tells the tools, then whatever the client's own system messages say. Observations stay
    messages of role `tool`, which the model's chat template writes as in training. `turn_as_written` gives the
    text of the turn that made a call, by the call's id, where it is known: the policy then sees its own
    reasoning again, as in training.

    Raises `UnusableRequest` for content other than text, an unknown role, or unreadable tools or calls.
    """
    system = [_text(message) for message in messages if message.get("role") in ("system", "developer")]
    if tools:
        system.insert(0, system_message(_tools_text(tools)))
    written = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            written.append({"role": role, "content": _turn(message, turn_as_written)})
        elif role == "user":
            written.append({"role": role, "content": _text(message)})
        elif role == "tool":
            call_id = str(message.get("tool_call_id") or "")
            written.append({"role": role, "content": _text(message), "tool_call_id": call_id})
        elif role not in ("system", "developer"):
            raise UnusableRequest(f"messages: role {role!r}; known are system, developer, user, assistant, tool")
    return written


def client_message(turn: ParsedTurn, text: str) -> dict[str, Any]:
    """An assistant turn as a client's message: `content`, `reasoning_content` and `tool_calls`.

    A turn whose blocks are all malformed makes no call: its text is the content, so that nothing is hidden.
    """
    message: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [_client_call(call) for call in turn.calls]
        message["content"] = turn.content or None
    elif turn.blocks:
        message["content"] = text
    return message


def _client_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}


def _turn(message: Mapping[str, Any], turn_as_written: Callable[[str], str | None]) -> str:
    calls = message.get("tool_calls") or []
    if calls and (written := turn_as_written(str(calls[0].get("id")))):
        return written
    try:
        read = [read_call(call.get("function")) for call in calls]
    except ValueError as error:
        raise UnusableRequest(f"messages: an assistant's tool_calls cannot be read: {error}") from error
    reasoning = message.get("reasoning_content")
    parts = [f"<think>\n{reasoning}\n</think>" if reasoning else "", _text(message), render(read) if read else ""]
    return "\n".join(part for part in parts if part)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        raise UnusableRequest(f"messages: the content of a {message.get('role')} message is not text")
    return "".join(part["text"] for part in parts)


def _tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    try:
        return read_tools(list(tools)).text
    except Unusable as error:
        raise UnusableRequest(f"tools: {error.reason}") from error
