"""Read the gold calls of a row, in every layout that data sets use."""

from collections.abc import Sequence
from typing import Any

from recipe_slca.tool_calls import loads, read_call

GoldSteps = list[list[dict[str, Any]]]
"""Steps in order, each a non-empty list of parallel calls {"name": str, "arguments": dict}."""


def read_gold(gold: Any) -> GoldSteps:
    """Read gold calls from a list, or from a JSON string of one; None and an empty string are no calls.

    Entries are steps (lists of parallel calls), or calls or bare tool names, each then a step of its own: a
    flat list does not say which of its calls were parallel. Empty steps are dropped.

    Raises `ValueError` naming the entry that cannot be read.
    """
    if isinstance(gold, str):
        try:
            gold = loads(gold) if gold.strip() else None
        except ValueError as error:
            raise ValueError(f"gold calls are not JSON ({error}): {_shown(gold)}") from error
    if gold is None:
        return []
    if not _is_list(gold):
        raise ValueError(f"gold calls must be a list of steps, calls or tool names, got {_shown(gold)}")
    steps = []
    for position, entry in enumerate(gold):
        if _is_list(entry):
            steps.append([_read(call, f"step {position}, call {number}") for number, call in enumerate(entry)])
        else:
            steps.append([_read(entry, f"entry {position}")])
    return [step for step in steps if step]


def _read(call: Any, where: str) -> dict[str, Any]:
    try:
        read = read_call({"name": call} if isinstance(call, str) else call)
    except ValueError as error:
        raise ValueError(f"gold calls, {where}: {error}: {_shown(call)}") from error
    return {"name": read.name, "arguments": read.arguments}


def _is_list(value: Any) -> bool:
    """Lists, tuples and arrays (Parquet readers return those), but no text and no mapping."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) or hasattr(value, "tolist")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
