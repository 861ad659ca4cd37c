"""The gold calls of a rollout beside the calls that stand for them, argument by argument.

The pairs are found by the process reward's own matching, with its defaults (greedy, no schema).
"""

import json
from collections.abc import Sequence
from typing import Any

from recipe_slca.hierr.gold import read_gold
from recipe_slca.hierr.matching import match_calls
from recipe_slca.hierr.values import loosely_equal
from recipe_slca.report.cutting import Cutter, name
from recipe_slca.tool_calls import ParsedTurn, ToolCall

_VALUE_LIMIT = 600


def compare(gold_calls: Any, turns: Sequence[ParsedTurn], cutter: Cutter) -> list[list[dict[str, Any]]]:
    """Every gold call, in its steps. Raises ValueError when `gold_calls` cannot be read.

    A gold call has `name`, `arguments`, and `match`: None, or the `turn` and `call` (among that turn's
    readable calls, both from 0) that stand for it, with `key` and `value` in [0, 1]. Each argument has
    `name`, `gold` and `called` (texts, None where absent) and `fits`: equal, different, missing or extra.
    """
    steps = read_gold(gold_calls)
    gold = [ToolCall(call["name"], call["arguments"]) for step in steps for call in step]
    places = [(turn, call) for turn, parsed in enumerate(turns) for call in range(len(parsed.calls))]
    predicted = [call for parsed in turns for call in parsed.calls]
    match_of = {match.gold: match for match in match_calls(predicted, gold)}
    compared = []
    for number, call in enumerate(gold):
        match, called = match_of.get(number), {}
        shown_match = None
        if match is not None:
            called = predicted[match.predicted].arguments
            turn, place = places[match.predicted]
            fit = {"key": round(match.key, 6), "value": round(match.value, 6)}
            shown_match = {"turn": turn, "call": place, **fit}
        arguments = cutter.items_of(_arguments(call.arguments, called))
        compared.append({"name": name(call.name), "match": shown_match, "arguments": arguments})
    in_order = iter(compared)
    return [[next(in_order) for _ in step] for step in steps]


def _arguments(gold: dict[str, Any], called: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for argument in [*gold, *(argument for argument in called if argument not in gold)]:
        row = {"name": name(argument), "gold": None, "called": None, "fits": "missing"}
        if argument in gold:
            row["gold"] = _written(gold[argument])
        if argument in called:
            row["called"] = _written(called[argument])
            row["fits"] = "extra"
        if argument in gold and argument in called:
            row["fits"] = "equal" if loosely_equal(called[argument], gold[argument]) else "different"
        rows.append(row)
    return rows


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LIMIT else f"{text[:_VALUE_LIMIT]} [...]"
