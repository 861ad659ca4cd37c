"""The released RL and evaluation files, and those that this project writes: a prompt, and gold calls beside it.

There is no reply, so these rows give RL and evaluation rows alone. Rows published for evaluation stay there.
"""

from collections.abc import Mapping
from typing import Any

from data_prep.conversation import Conversation
from data_prep.json_text import loads_json_or_literal
from data_prep.readers.chat_text import read_turns
from data_prep.readers.toucan import read_messages, text_of
from data_prep.reasons import Unusable
from data_prep.tools import ToolReader
from recipe_slca.tool_calls import ToolCall, read_call

NAME = "slca-rl"
DESCRIPTION = "released RL and eval"
COLUMNS = ("data_source", "prompt", "reward_model", "extra_info", "tools")
DISTINCTIVE = {"prompt", "reward_model"}
_KEPT_INFO = {"original_idx": int, "turn_index": int, "split_position": int, "source": str, "recorded_calls": str}
_LARGEST = 2**63


def read(row: Mapping[str, Any], tool_reader: ToolReader) -> Conversation:
    """Read one row. Raises `Unusable`."""
    prompt = read_messages(row.get("prompt"))
    truth = _ground_truth(row.get("reward_model"))
    info = _object(row.get("extra_info"))
    provenance = _provenance(info)
    messages = read_turns([(message["role"], text_of(message)) for message in prompt if message["role"] != "system"])
    gold, complete = read_gold(truth.get("gold_tool_calls"), info.get("parallel_type"))
    return Conversation(
        identity=_identity(info, messages),
        subset=str(truth.get("subset_name") or ("tool_call" if gold else "irrelevant")),
        messages=messages,
        tools=tool_reader.read(row.get("tools") or truth.get("tool_schemas")),
        system=next((text_of(message) for message in prompt if message["role"] == "system"), None),
        gold=gold,
        gold_has_arguments=complete,
        provenance=provenance,
        evaluation_only=str(row.get("data_source") or "").startswith("toucan_eval"),
    )


def read_gold(value: Any, parallel_type: str | None = None) -> tuple[list[list[ToolCall]], bool]:
    """Gold calls by step, from nested lists, a flat list, or a flat list of names; and whether arguments are given.

    A flat list is one step where `parallel_type` says so, and else one step a call. Raises `Unusable`.
    """
    try:
        for _ in range(2):
            if isinstance(value, str):
                value = loads_json_or_literal(value) if value.strip() else []
    except ValueError as error:
        raise Unusable("unparseable_gold") from error
    if value is None:
        value = []
    if not isinstance(value, list):
        raise Unusable("unparseable_gold")
    if not all(isinstance(step, list) for step in value):
        value = [value] if str(parallel_type).startswith("single_step") else [[call] for call in value]
    complete = not any(isinstance(call, str) for step in value for call in step)
    try:
        steps = [[ToolCall(call) if isinstance(call, str) else read_call(call) for call in step] for step in value]
    except ValueError as error:
        raise Unusable("unparseable_gold") from error
    return [step for step in steps if step], complete


def _ground_truth(value: Any) -> dict[str, Any]:
    truth = _object(_object(value).get("ground_truth"))
    if not truth:
        raise Unusable("unparseable_gold")
    return truth


def _provenance(info: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are kept as they are, those of the expected type."""
    named = {"turn_index": info.get("original_turn_index"), **{k: v for k, v in info.items() if v is not None}}
    kept = {key: named.get(key) for key, kind in _KEPT_INFO.items() if type(named.get(key)) is kind}
    return {key: value for key, value in kept.items() if isinstance(value, str) or abs(value) < _LARGEST}


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = loads_json_or_literal(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _identity(info: Mapping[str, Any], messages: list) -> str:
    """One identity for all samples of a dialogue: its uuid or index, or else its first question."""
    if info.get("uuid"):
        return str(info["uuid"])
    if info.get("original_idx") is not None:
        return f"{info.get('source')} {info['original_idx']}"
    return next((message.content for message in messages), "")
