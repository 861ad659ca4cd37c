"""What a dataset row says of its task: tools, recorded calls, question and gold calls.

Rows are those of the RL and eval parquet (layout B). The rollout reads only what the policy may know;
`ground_truth` is for the reward alone.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any


class TaskError(ValueError):
    """A row that cannot be used; the message names the column, what is wrong and what to do."""


def tool_schemas(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The row's own tools, as raw OpenAI-style schemas: column `tools`, else `ground_truth.tool_schemas`.

    Raises `TaskError` when neither holds a JSON list of objects.
    """
    column, value = "tools", row.get("tools")
    if value is None or value == "":
        column, value = "reward_model.ground_truth.tool_schemas", ground_truth(row).get("tool_schemas")
    schemas = _from_json(value, column)
    if isinstance(schemas, dict):
        schemas = [schemas]
    if not isinstance(schemas, list) or not all(isinstance(schema, dict) for schema in schemas):
        raise TaskError(f"column {column} must be a JSON list of tool schemas; {_PREPARE}")
    return schemas


def recorded_calls(row: Mapping[str, Any]) -> Any:
    """The calls and responses of the source trajectory (`extra_info.recorded_calls`), None without them."""
    return (row.get("extra_info") or {}).get("recorded_calls")


def question(row: Mapping[str, Any]) -> str:
    """What the user asked: the last user message of the prompt."""
    for message in reversed(list(row.get("raw_prompt", []))):
        if message["role"] == "user":
            return message["content"]
    return ""


def shows_tools(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the prompt's text already lists the tools, inside `<tools>` in the system message."""
    return any(message["role"] == "system" and "<tools>" in str(message["content"]) for message in messages)


def ground_truth(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row's `reward_model.ground_truth`. Raises `TaskError` when it is not an object."""
    value = (row.get("reward_model") or {}).get("ground_truth")
    if not isinstance(value, Mapping):
        raise TaskError(f"column reward_model.ground_truth must be an object with gold_tool_calls; {_PREPARE}")
    return value


_PREPARE = "prepare the data with `python -m data_prep.build` and check it with `python -m data_prep.inspect`"


def _from_json(value: Any, column: str) -> Any:
    """Decode JSON, also JSON of JSON, as some published rows have it."""
    for _ in range(2):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise TaskError(f"column {column} is not JSON ({error}); {_PREPARE}") from error
    return value
