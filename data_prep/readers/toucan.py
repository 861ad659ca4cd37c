"""Toucan-1.5M, configs Kimi-K2, OSS and Qwen3: nine string columns, calls as `function_call` messages.

An assistant turn is spread over several messages (`reasoning? text? call+`), parallel calls are call
messages in a row, and their responses follow in the same order. OSS keeps reasoning in messages of their own
(`reasoning_content`).
"""

from collections.abc import Mapping
from typing import Any

from data_prep.conversation import Conversation, Message, compose_turn
from data_prep.json_text import loads, loads_exactly, loads_texts
from data_prep.readers.chat_text import declared_tools
from data_prep.reasons import Unusable
from data_prep.tools import ToolList, ToolReader
from recipe_slca.tool_calls import ToolCall

NAME = "toucan"
DESCRIPTION = "Toucan Kimi-K2, OSS, Qwen3"
COLUMNS = (
    "uuid",
    "subset_name",
    "messages",
    "available_tools",
    "question_quality_assessment",
    "response_quality_assessment",
)
DISTINCTIVE = {"messages", "available_tools"}


def read(row: Mapping[str, Any], tool_reader: ToolReader) -> Conversation:
    """Read one row. Raises `Unusable`."""
    raw = read_messages(row.get("messages"))
    system = next((text_of(message) for message in raw if message["role"] == "system"), "")
    messages = join_turns([message for message in raw if message["role"] != "system"])
    tools = _choose_tools(row.get("available_tools"), system, messages, tool_reader)
    return Conversation(
        identity=str(row.get("uuid") or ""),
        subset=str(row.get("subset_name") or ""),
        messages=messages,
        tools=tools,
        question_quality=overall_score(row.get("question_quality_assessment")),
        response_quality=overall_score(row.get("response_quality_assessment")),
    )


def read_messages(value: Any) -> list[dict[str, Any]]:
    """The raw messages of a row, each an object with a string `role`. Raises `Unusable`."""
    if isinstance(value, str):
        value = _load_messages(value)
    if value is None or value == []:
        raise Unusable("empty_messages")
    if not isinstance(value, list) or not all([isinstance(m, dict) and isinstance(m.get("role"), str) for m in value]):
        raise Unusable("unparseable_messages")
    return value


def _load_messages(text: str) -> Any:
    if not text.strip():
        return []
    try:
        value = loads_texts(text)
        return loads(text) if _has_argument_objects(value) else value
    except ValueError as error:
        raise Unusable("unparseable_messages") from error


def _has_argument_objects(messages: Any) -> bool:
    """Whether calls have arguments as objects, whose numbers count, instead of as JSON text."""
    if not isinstance(messages, list):
        return False
    calls = [message.get("function_call") for message in messages if isinstance(message, dict)]
    return any([isinstance(call.get("arguments"), dict) for call in calls if isinstance(call, dict)])


def text_of(message: Mapping[str, Any], key: str = "content") -> str:
    """A message's text; null is empty. Raises `Unusable` when it is neither."""
    text = message.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise Unusable("unparseable_messages")
    return text


def overall_score(assessment: Any) -> float | None:
    """The `overall_score` of a quality assessment; None where there is none."""
    if isinstance(assessment, str):
        try:
            assessment = loads_texts(assessment)
        except ValueError:
            return None
    score = assessment.get("overall_score") if isinstance(assessment, Mapping) else None
    return float(score) if isinstance(score, int | float) and not isinstance(score, bool) else None


def join_turns(raw: list[dict[str, Any]]) -> list[Message]:
    """Join the messages of each assistant turn into one; calls get their responses in order.

    Raises `Unusable`: unparseable_messages, unparseable_arguments, unanswered_calls.
    """
    messages: list[Message] = []
    turn = _Turn()
    for message in raw:
        role = message["role"]
        if role == "assistant":
            if turn.responses:
                turn.close(messages)
                turn = _Turn()
            turn.add(message)
        elif role in ("function", "tool"):
            turn.answer(message)
        elif role == "user":
            turn.close(messages)
            turn = _Turn()
            messages.append(Message("user", text_of(message)))
        else:
            raise Unusable("unparseable_messages")
    turn.close(messages)
    return messages


class _Turn:
    """The messages of one assistant turn, collected until its responses are complete."""

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.calls: list[ToolCall] = []
        self.responses: list[str] = []
        self.seen = False

    def add(self, message: Mapping[str, Any]) -> None:
        self.seen = True
        reasoning = text_of(message, "reasoning_content") if "reasoning_content" in message else ""
        text = text_of(message)
        if (reasoning or text) and self.calls:
            raise Unusable("unanswered_calls")
        if reasoning:
            self.reasoning.append(reasoning)
        if text:
            self.texts.append(text)
        if message.get("function_call") is not None:
            self.calls.append(read_function_call(message["function_call"]))

    def answer(self, message: Mapping[str, Any]) -> None:
        if len(self.responses) >= len(self.calls):
            raise Unusable("unanswered_calls")
        name, called = message.get("name"), self.calls[len(self.responses)].name
        # Responses may name the tool without its server.
        if isinstance(name, str) and not (called.endswith(name) or name.endswith(called)):
            raise Unusable("unanswered_calls")
        self.responses.append(text_of(message))

    def close(self, messages: list[Message]) -> None:
        if len(self.responses) != len(self.calls):
            raise Unusable("unanswered_calls")
        if self.seen:
            messages.append(compose_turn("\n".join(self.reasoning), "\n".join(self.texts), self.calls))
            messages.extend(Message("tool", response) for response in self.responses)


def read_function_call(value: Any) -> ToolCall:
    """Read `{"name", "arguments": JSON string}`; empty arguments are no arguments. Raises `Unusable`."""
    try:
        name, arguments = value["name"], value.get("arguments") or {}
        if isinstance(arguments, str):
            arguments = loads_exactly(arguments)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unusable("unparseable_arguments") from error
    if not isinstance(arguments, dict) or not isinstance(name, str) or not name:
        raise Unusable("unparseable_arguments")
    return ToolCall(name, arguments)


def _choose_tools(column: Any, system: str, messages: list[Message], tool_reader: ToolReader) -> ToolList:
    """The tools of the column, or those of the system message where only they hold what is called.

    The two can differ; the system message is what the teacher was shown.
    """
    called = {call.name for message in messages for call in message.calls}
    fault = None
    try:
        tools = tool_reader.read(column)
        if called <= tools.names:
            return tools
    except Unusable as error:
        tools, fault = None, error.reason
    declared = declared_tools(system, tool_reader)
    if declared is not None and called <= declared.names and fault in (None, "no_tools"):
        return declared
    if tools is None:
        raise Unusable(fault)
    return tools
