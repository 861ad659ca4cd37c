"""The gold calls of a rollout beside the calls that stand for them, argument by argument."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from recipe_slca.hierr.gold import GoldSteps, read_gold
from recipe_slca.hierr.process import ProcessScore, score_process
from recipe_slca.hierr.values import loosely_equal
from recipe_slca.report.cutting import Cutter, name
from recipe_slca.settings import ProcessSettings

_VALUE_LIMIT = 600
_ASSIGNMENTS = ("greedy", "optimal")


def compare(
    gold_calls: Any, turn_texts: Sequence[str], metrics: Mapping[str, float], cutter: Cutter
) -> tuple[list[list[dict[str, Any]]], bool]:
    """Every gold call, in its steps, and whether the pairs are those that the rollout was scored by.

    A dump holds the `key` and `value` that the pairs gave (in `metrics`), not the pairs: they are found again
    with the assignment that gives the same. Under a reward that compares in another way
    (`slca.process.schema_aware_values`, `execution_match`) that can be none.

    A gold call has `name`, `arguments`, and `match`: None, or the `turn` and `call` (among that turn's
    readable calls, both from 0) that stand for it, with `key` and `value` in [0, 1]. Each argument has
    `name`, `gold` and `called` (texts, None where absent) and `fits`: equal, different, missing or extra.

    Raises ValueError when `gold_calls` cannot be read.
    """
    steps = read_gold(gold_calls)
    score, is_as_scored = _score_again(turn_texts, steps, metrics)
    gold = [call for step in steps for call in step]
    places = [(turn, call) for turn, calls in enumerate(score.calls) for call in range(len(calls))]
    predicted = [call for calls in score.calls for call in calls]
    match_of = {match.gold: match for match in score.matches}
    compared = []
    for number, call in enumerate(gold):
        match, called = match_of.get(number), {}
        shown_match = None
        if match is not None:
            called = predicted[match.predicted].arguments
            turn, place = places[match.predicted]
            fit = {"key": round(match.key, 6), "value": round(match.value, 6)}
            shown_match = {"turn": turn, "call": place, **fit}
        arguments = cutter.items_of(_arguments(call["arguments"], called))
        compared.append({"name": name(call["name"]), "match": shown_match, "arguments": arguments})
    in_order = iter(compared)
    return [[next(in_order) for _ in step] for step in steps], is_as_scored


def _score_again(turn_texts: Sequence[str], gold: GoldSteps, metrics: Mapping[str, float]) -> tuple[ProcessScore, bool]:
    tools = {"any"}  # which ones the row offers changes nothing in the pairs, so long as it offers one
    scores = []
    for assignment in _ASSIGNMENTS:
        score = score_process(turn_texts, gold, tools, ProcessSettings(assignment=assignment))
        if not score.matches or all(_agrees(getattr(score, term), metrics.get(term)) for term in ("key", "value")):
            return score, True
        scores.append(score)
    return scores[0], False


def _agrees(found: float, dumped: float | None) -> bool:
    return dumped is None or math.isclose(found, dumped, abs_tol=1e-6)


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
