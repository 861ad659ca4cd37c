"""Is a file fit for training? Its columns and types first, then every row."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from data_prep.conversation import read_turn
from data_prep.json_text import loads
from data_prep.prompt_length import count_tokens
from data_prep.readers.chat_text import declared_tools
from data_prep.readers.slca_rl import read_gold
from data_prep.reasons import Unusable
from data_prep.rows import SFT_SCHEMA, TASK_SCHEMA
from data_prep.tools import ToolList, ToolReader

FAULTS_SHOWN = 10
ROLES = ("system", "user", "assistant", "tool")
# Columns without which verl or the reward cannot work.
REQUIRED = {
    "sft": {"messages": SFT_SCHEMA.field("messages").type},
    "task": {name: TASK_SCHEMA.field(name).type for name in ("data_source", "prompt", "tools")},
}
Faults = Generator[str, None, Any]
"""Yields faults; what a check found besides is its return value."""
_TRUTH_KEYS = ("question_content", "allowed_tools", "tool_schemas", "gold_tool_calls")


@dataclass(frozen=True)
class LengthLimit:
    """The longest prompt (SFT: dialogue) in tokens of a tokenizer."""

    tokenizer: str
    tokens: int


@dataclass
class Findings:
    """What was found. faults: how many in all; first: the first of them, each with its row."""

    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    first: list[str] = field(default_factory=list)
    longest_tokens: int = 0

    def add(self, where: str, fault: str) -> None:
        """Take down one fault."""
        self.faults += 1
        if len(self.first) < FAULTS_SHOWN:
            self.first.append(f"{where}: {fault}")


def file_kind(schema: pa.Schema) -> str | None:
    """`sft` or `task` (RL and evaluation) by the columns; None for a file that is not for training."""
    if {"prompt", "reward_model"} <= set(schema.names):
        return "task"
    if "messages" in schema.names and "available_tools" not in schema.names and "tools" not in schema.names:
        return "sft"
    return None


def check_schema(schema: pa.Schema, kind: str, findings: Findings) -> None:
    """Columns that are missing or of a type that training cannot read."""
    for name, expected in REQUIRED[kind].items():
        if name not in schema.names:
            findings.add("columns", f"{name} is missing")
        elif not _same_form(schema.field(name).type, expected):
            findings.add("columns", f"{name} is {schema.field(name).type}, not {expected}")
    if kind == "task" and not pa.types.is_struct(schema.field("reward_model").type):
        findings.add("columns", f"reward_model is {schema.field('reward_model').type}, not a struct")


def check_rows(rows: Iterator[Mapping[str, Any]], kind: str, limit: LengthLimit | None, findings: Findings) -> None:
    """Check every row; `findings` gets the counts and the faults."""
    check: Callable = _sft_faults if kind == "sft" else _task_faults
    tool_reader = ToolReader()
    for number, row in enumerate(rows):
        findings.rows += 1
        for fault in check(row, tool_reader, findings):
            findings.add(f"row {number}", fault)
        if limit:
            messages = row["messages" if kind == "sft" else "prompt"] or []
            tokens = count_tokens(messages, limit.tokenizer, with_reply=kind == "sft")
            findings.longest_tokens = max(findings.longest_tokens, tokens)
            if tokens > limit.tokens:
                findings.add(f"row {number}", f"{tokens} tokens, more than {limit.tokens}")


def _same_form(found: pa.DataType, expected: pa.DataType) -> bool:
    """Equal but for the sizes of offsets and the order of fields."""
    if pa.types.is_list(expected):
        return (pa.types.is_list(found) or pa.types.is_large_list(found)) and _same_form(
            found.value_type, expected.value_type
        )
    if pa.types.is_struct(expected):
        return pa.types.is_struct(found) and all(
            found.get_field_index(part.name) >= 0 and _same_form(found.field(part.name).type, part.type)
            for part in expected
        )
    return pa.types.is_string(found) or pa.types.is_large_string(found)


def _sft_faults(row: Mapping[str, Any], tool_reader: ToolReader, findings: Findings) -> Iterator[str]:
    messages = row["messages"] or []
    findings.kinds[str(row.get("subset_name") or "sft")] += 1
    yield from _message_faults(messages)
    if not messages or messages[-1]["role"] != "assistant":
        yield "the dialogue does not end with the assistant"
        return
    calls = yield from _calls_of(messages)
    tools = declared_tools(messages[0]["content"] or "", tool_reader) if messages[0]["role"] == "system" else None
    if tools is None:
        yield "the system message declares no tools that can be read"
    else:
        yield from _call_faults(calls, tools, "call")


def _task_faults(row: Mapping[str, Any], tool_reader: ToolReader, findings: Findings) -> Iterator[str]:
    prompt = row["prompt"] or []
    truth = (row["reward_model"] or {}).get("ground_truth")
    info = row.get("extra_info") or {}
    findings.kinds[str(info.get("parallel_type") or "unknown")] += 1
    yield from _message_faults(prompt)
    if not prompt or prompt[-1]["role"] != "user":
        yield "the prompt does not end with the user's question"
    yield from _calls_of(prompt)
    if not isinstance(truth, Mapping):
        yield "reward_model.ground_truth is missing"
        return
    for key in _TRUTH_KEYS:
        if truth.get(key) is None:
            yield f"ground_truth.{key} is missing"
    tools = yield from _fault_of(lambda: tool_reader.read(row.get("tools")), None)
    gold, complete = yield from _fault_of(
        lambda: read_gold(truth.get("gold_tool_calls"), info.get("parallel_type")), ([], False)
    )
    if tools is not None:
        unknown = set(truth.get("allowed_tools") or []) - set(tools.names)
        if unknown:
            yield f"allowed_tools names tools without a schema: {', '.join(sorted(unknown)[:3])}"
        calls = [call for step in gold for call in step]
        yield from _call_faults(calls, tools, "gold call", check_arguments=complete)
    yield from _recorded_faults(info.get("recorded_calls"))


def _message_faults(messages: list[Mapping[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "there are no messages"
    for place, message in enumerate(messages):
        if message.get("role") not in ROLES:
            yield f"message {place} has the role {message.get('role')!r}"
        if not isinstance(message.get("content"), str):
            yield f"message {place} has no text"


def _calls_of(messages: list[Mapping[str, Any]]) -> Faults:
    """The calls of all assistant turns; yields a fault for each turn that cannot be read."""
    calls = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and isinstance(message["content"], str):
            try:
                calls += read_turn(message["content"]).calls
            except Unusable as error:
                yield f"message {place}: {error}"
    return calls


def _call_faults(calls: list, tools: ToolList, what: str, check_arguments: bool = True) -> Iterator[str]:
    for call in calls:
        if call.name not in tools.names:
            yield f"{what} of {call.name!r}, which is not among the tools"
        elif check_arguments and tools.verdict(call) == "invalid_arguments":
            yield f"{what} of {call.name!r} has arguments that fail its schema"


def _fault_of(read: Callable[[], Any], otherwise: Any) -> Faults:
    """What `read` returns; its fault is yielded, and `otherwise` returned, when it raises `Unusable`."""
    try:
        return read()
    except Unusable as error:
        yield str(error)
        return otherwise


def _recorded_faults(recorded: Any) -> Iterator[str]:
    if recorded is None:
        return
    try:
        value = loads(recorded)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, list) or not all(
        isinstance(call, dict) and {"name", "arguments", "response"} <= call.keys() for call in value
    ):
        yield "extra_info.recorded_calls is not a JSON list of calls with responses"
