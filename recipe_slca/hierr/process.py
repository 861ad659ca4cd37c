"""The process reward: how well a rollout's calls agree with the gold calls. METHOD 3.

    process = 0.10 format + 0.25 name + 0.15 key + 0.20 value + 0.30 parallel        each in [0, 1]

Calls inside reasoning do not count; a call in a readable block counts even when its tool is unknown, as it
was made and answered.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from recipe_slca.hierr.matching import Match, match_calls
from recipe_slca.hierr.schema_values import SchemaValues
from recipe_slca.settings import ProcessSettings, ProcessWeights
from recipe_slca.tool_calls import ParsedTurn, ToolCall, parse


@dataclass(frozen=True)
class ProcessScore:
    """The five terms, each in [0, 1], and their weighted sum `total`.

    turn_rewards: one for each assistant turn: the turn's share of `total` (see `_share_out`).
    matches: which predicted call stands for which gold call.
    calls: the readable calls of each turn.
    """

    format: float = 0.0
    name: float = 0.0
    key: float = 0.0
    value: float = 0.0
    parallel: float = 0.0
    total: float = 0.0
    turn_rewards: tuple[float, ...] = ()
    matches: tuple[Match, ...] = ()
    calls: tuple[tuple[ToolCall, ...], ...] = ()


def score_process(
    turn_texts: Sequence[str],
    gold: Sequence[Sequence[Mapping[str, Any]]],
    allowed_tools: Collection[str],
    settings: ProcessSettings | None = None,
    tools_by_name: Mapping[str, Mapping[str, Any]] | None = None,
    same_result: Collection[tuple[int, int]] = (),
) -> ProcessScore:
    """Score one rollout's calls against the gold calls.

    turn_texts: the assistant turns as generated, in order, the closing reply included.
    gold: steps of parallel calls {"name", "arguments"} (`gold.read_gold`).
    allowed_tools: names that the row offers; when empty, every term is 0.
    tools_by_name: JSON Schema of each tool's arguments, used with `schema_aware_values`.
    same_result: (predicted, gold) call numbers, counted over all turns and steps, that the simulator
        answered alike (`execution.same_results`).
    """
    settings = settings or ProcessSettings()
    turns = [parse(text) for text in turn_texts]
    calls = tuple(tuple(turn.calls) for turn in turns)
    if not allowed_tools:
        return ProcessScore(turn_rewards=(0.0,) * len(turns), calls=calls)
    predicted = [call for turn in calls for call in turn]
    gold_calls = [ToolCall(call["name"], call["arguments"]) for step in gold for call in step]
    schemas = None
    if settings.schema_aware_values and tools_by_name:
        called = {call.name for call in predicted}
        schemas = {name: SchemaValues(schema) for name, schema in tools_by_name.items() if name in called}
    matches = match_calls(predicted, gold_calls, settings.assignment, same_result, schemas)
    key, value = _key_and_value(matches, predicted, gold_calls)
    tags = [_tags(turn, allowed_tools) for turn in turns]
    terms = {
        "format": _Tags(*map(sum, zip(*tags, strict=True))).format if tags else 0.0,
        "name": _name_f1(matches, predicted, gold_calls),
        "key": key,
        "value": value,
        "parallel": float(next((len(turn) for turn in calls if turn), 0) == (len(gold[0]) if gold else 0)),
    }
    weights = settings.weights
    total = math.fsum(getattr(weights, term) * score for term, score in terms.items())
    step_sizes = [len(step) for step in gold for _ in step]
    turn_rewards = _share_out(total, tags, [len(turn) for turn in calls], matches, step_sizes, weights)
    return ProcessScore(**terms, total=total, turn_rewards=turn_rewards, matches=tuple(matches), calls=calls)


class _Tags(NamedTuple):
    """Call tags of a turn or a rollout, and how many blocks between them are valid."""

    valid: int
    opening: int
    closing: int

    @property
    def format(self) -> float:
        tags = max(self.opening, self.closing)
        return self.valid / tags if tags else 0.0


def _tags(turn: ParsedTurn, allowed_tools: Collection[str]) -> _Tags:
    valid = 0
    for block in turn.blocks:
        valid += not block.error and all(call.name in allowed_tools for call in block.calls)
    return _Tags(valid, turn.opening_tags, turn.closing_tags)


def _name_f1(matches: Sequence[Match], predicted: Sequence[ToolCall], gold: Sequence[ToolCall]) -> float:
    """Multiset F1 of names; a prediction that gives a gold call's result counts under that call's name."""
    if not predicted and not gold:
        return 1.0
    names = [call.name for call in predicted]
    for match in matches:
        names[match.predicted] = gold[match.gold].name
    common = sum((Counter(names) & Counter(call.name for call in gold)).values())
    return 2 * common / (len(predicted) + len(gold))


def _key_and_value(
    matches: Sequence[Match], predicted: Sequence[ToolCall], gold: Sequence[ToolCall]
) -> tuple[float, float]:
    with_arguments = sum(bool(call.arguments) for call in gold)
    if not with_arguments:
        return 1.0, 1.0
    counted = [match for match in matches if gold[match.gold].arguments]
    return (
        sum(match.key for match in counted) / with_arguments,
        sum(match.value for match in counted) / with_arguments,
    )


def _share_out(
    total: float,
    tags: Sequence[_Tags],
    calls_made: Sequence[int],
    matches: Sequence[Match],
    step_sizes: Sequence[int],
    weights: ProcessWeights,
) -> tuple[float, ...]:
    """Each turn's share of `total`; the last turn is no tool turn and gets 0. Beyond the paper.

    calls_made: calls of each turn. step_sizes: for each gold call, how many calls its step has.

    A tool turn's merit is the process reward seen from that turn alone:

        merit = w_format * (its valid blocks / its tags)
              + the mean over its calls of (w_name + w_key * key + w_value * value), 0 for an unmatched call
              + w_parallel * (1 if it makes as many calls as the gold step that its first matched call is of)

    share = total * merit / (sum of the merits of all tool turns); without any merit, equal parts. So shares
    sum to `total`, right turns of one rollout get the same, a wrong turn gets less than a right one whatever
    their order, and a redundant turn (nothing left to match) gets what its format is worth.

    A share shrinks with the number of tool turns T. What compares between rollouts of different length is
    how far a share lies from an equal one, added to the whole: share + total * (1 - 1/T).
    """
    tool_turns = list(zip(tags, calls_made, strict=True))[:-1]
    if not tool_turns:
        return (0.0,) * len(tags)
    match_of = {match.predicted: match for match in matches}
    merits = []
    first_call = 0
    for turn_tags, calls in tool_turns:
        matched = [match_of[number] for number in range(first_call, first_call + calls) if number in match_of]
        first_call += calls
        merit = weights.format * turn_tags.format
        if matched:
            credit = sum(weights.name + weights.key * match.key + weights.value * match.value for match in matched)
            merit += credit / calls
            merit += weights.parallel * (calls == step_sizes[matched[0].gold])
        merits.append(merit)
    whole = sum(merits)
    shares = [total * merit / whole if whole else total / len(merits) for merit in merits]
    return (*shares, 0.0)
