"""Which predicted calls do what a gold call does, going by the simulator's answers.

METHOD 3 knows one legal plan, the gold one, and under-rates another that leads to the same result. Two calls
whose answers are equal are taken to do the same. This needs a simulator that answers alike what is alike:
replay, a cache, or an LLM at temperature 0.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from recipe_slca.hierr.values import loosely_equal
from recipe_slca.tool_calls import ToolCall, loads

Respond = Callable[[ToolCall], Awaitable[str | None]]
"""Answers a call as if it were the first of a rollout; None when it is invalid or has no answer."""


async def same_results(
    predicted: Sequence[ToolCall],
    gold: Sequence[ToolCall],
    respond: Respond,
    settled: Collection[tuple[int, int]] = (),
) -> frozenset[tuple[int, int]]:
    """(predicted, gold) numbers of calls that get equal answers, compared as JSON (`loosely_equal`) or as text.

    settled: pairs that need no asking, because they agree as they are.
    An answer that says nothing, such as `[]` or `true`, equals none: calls that have nothing else in common
    get it too.
    """
    settled_predictions, settled_gold = {pair[0] for pair in settled}, {pair[1] for pair in settled}
    open_predictions = [number for number in range(len(predicted)) if number not in settled_predictions]
    open_gold = [number for number in range(len(gold)) if number not in settled_gold]
    if not open_predictions or not open_gold:
        return frozenset()
    results = await asyncio.gather(*(respond(predicted[number]) for number in open_predictions))
    gold_results = await asyncio.gather(*(respond(gold[number]) for number in open_gold))
    return frozenset(
        (predicted_number, gold_number)
        for predicted_number, answer in zip(open_predictions, map(_result, results), strict=True)
        for gold_number, gold_answer in zip(open_gold, map(_result, gold_results), strict=True)
        if answer is not None and loosely_equal(answer, gold_answer)
    )


def _result(text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = loads(text)
    except ValueError:
        value = text.strip()
    says_nothing = value is None or isinstance(value, bool) or value in ("", [], {})
    return None if says_nothing else value
