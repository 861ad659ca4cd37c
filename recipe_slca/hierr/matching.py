"""Match predicted calls to gold calls, each prediction and each gold call used once. METHOD 3.

A prediction may match a gold call of the same name, or one that the caller says gives the same result. How
well a pair fits is (key, value), each in [0, 1]: the Jaccard index of the argument names, and the share of
the gold arguments whose value is equal.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from recipe_slca.hierr.schema_values import SchemaValues
from recipe_slca.hierr.values import loosely_equal
from recipe_slca.tool_calls import ToolCall

_WHOLLY = (1.0, 1.0)


class Match(NamedTuple):
    """Prediction number `predicted` stands for gold call number `gold`; both count from 0 over all steps."""

    predicted: int
    gold: int
    key: float
    value: float


def match_calls(
    predicted: Sequence[ToolCall],
    gold: Sequence[ToolCall],
    assignment: Literal["greedy", "optimal"] = "greedy",
    same_result: Collection[tuple[int, int]] = (),
    schemas: Mapping[str, SchemaValues] | None = None,
) -> list[Match]:
    """Match as many pairs as can be, ordered by gold call.

    greedy: gold calls with arguments choose first, in order, each the best unused prediction (highest
        key + value, the earliest of equals); then those without arguments (the paper's way).
    optimal: the matching with the highest sum of key + value.
    same_result: (predicted, gold) numbers of calls known to give the same result; such a pair fits wholly.
    schemas: by tool name; values are then compared as that tool's schema says.
    """

    def fit(predicted_number: int, gold_number: int) -> tuple[float, float] | None:
        if same_result and (predicted_number, gold_number) in same_result:
            return _WHOLLY
        call, gold_call = predicted[predicted_number], gold[gold_number]
        if call.name != gold_call.name:
            return None
        return _fit_arguments(call.arguments, gold_call.arguments, schemas.get(call.name) if schemas else None)

    choose = _choose_optimally if assignment == "optimal" else _choose_greedily
    return sorted(choose(len(predicted), gold, fit), key=lambda match: match.gold)


_Fit = Callable[[int, int], tuple[float, float] | None]


def _choose_greedily(predictions: int, gold: Sequence[ToolCall], fit: _Fit) -> list[Match]:
    unused = list(range(predictions))
    matches = []
    for gold_number in sorted(range(len(gold)), key=lambda number: not gold[number].arguments):
        best = None
        for predicted_number in unused:
            fits = fit(predicted_number, gold_number)
            if fits is not None and (best is None or sum(fits) > best.key + best.value):
                best = Match(predicted_number, gold_number, *fits)
                if fits == _WHOLLY:
                    break
        if best is not None:
            unused.remove(best.predicted)
            matches.append(best)
    return matches


def _choose_optimally(predictions: int, gold: Sequence[ToolCall], fit: _Fit) -> list[Match]:
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    fits = {
        (predicted_number, gold_number): fits
        for predicted_number in range(predictions)
        for gold_number in range(len(gold))
        if (fits := fit(predicted_number, gold_number)) is not None
    }
    worth = np.zeros((predictions, len(gold)))
    for (predicted_number, gold_number), (key, value) in fits.items():
        # A pair that fits in its name alone is still a match; the bonus is too small to outweigh arguments.
        worth[predicted_number, gold_number] = 1e-6 + (key + value if gold[gold_number].arguments else 0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [Match(*pair, *fits[pair]) for pair in pairs if pair in fits]


def _fit_arguments(
    predicted: Mapping[str, Any], gold: Mapping[str, Any], schema: SchemaValues | None
) -> tuple[float, float]:
    if not gold:
        return _WHOLLY
    if schema is not None:
        predicted, gold = schema.without_defaults(predicted, gold)
    shared = predicted.keys() & gold.keys()
    equal_values = 0
    for name in shared:
        one, other = predicted[name], gold[name]
        equal_values += schema.equal(name, one, other) if schema else loosely_equal(one, other)
    names = len(predicted) + len(gold) - len(shared)
    return len(shared) / names if names else 1.0, equal_values / len(gold) if gold else 1.0
