"""Metrics of one step's rollouts: flat floats with the prefix `slca/`, always the same keys.

They are means over rollouts, so that runs with different estimators can be compared curve by curve.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recipe_slca.advantage import UNGRADED

TURN_REWARDS = "turn_rewards"
"""Key under which a reward manager hands the turn rewards over, beside the scores."""
_SPREAD_TOLERANCE = 1e-8
_MEAN_AND_STD = ("process", "format", "name", "key", "value", "parallel")
_MEAN = {
    "name_f1": "name_f1",
    "arg_match": "arg_match",
    "tool_segment": "tool_segment_share",
    "ungraded": "ungraded_share",
    "omission": "omission_share",
    "calls": "calls",
    "tool_turns": "tool_turns",
    "redundant_calls": "redundant_calls",
}
Estimator = Callable[[Tensor, Tensor, list[str]], Tensor]


@dataclass
class RolloutRecord:
    """What the metrics need of one rollout.

    group: verl's uid. tool_reward, summary_reward: None where the segment is absent or ungraded.
    turn_rewards: one for each turn. scores: `RewardScore.metrics` of HierR. details: further fields for the
    rollout dump, None when this rollout is not dumped.
    """

    group: str
    rollout: int
    tool_reward: float | None
    summary_reward: float | None
    turn_rewards: list[float]
    scores: Mapping[str, float]
    details: dict[str, Any] | None = field(default=None, repr=False)


def step_metrics(records: Sequence[RolloutRecord], estimate: Estimator | None = None) -> dict[str, float]:
    """The metrics of one step's rollouts; without rollouts there are none.

    estimate: the run's advantage estimator, called as in `advantage`; None leaves the advantages out.
    """
    if not records:
        return {}
    metrics = {"slca/rollouts": float(len(records))}
    for name in _MEAN_AND_STD:
        metrics |= _mean_and_std(f"slca/reward/{name}", [record.scores[name] for record in records])
    for name in ("tool", "summary"):
        graded = [value for record in records if (value := getattr(record, f"{name}_reward")) is not None]
        metrics |= _mean_and_std(f"slca/reward/{name}", graded)
        metrics[f"slca/zero_spread/{name}"] = zero_spread_share(records, f"{name}_reward")
    for name, shown in _MEAN.items():
        metrics[f"slca/{shown}"] = _mean([record.scores[name] for record in records])
    for name in records[0].scores:
        if name.startswith("success_"):
            metrics[f"slca/success@{name.removeprefix('success_')}"] = _mean([r.scores[name] for r in records])
        if name.startswith("ended_"):
            metrics[f"slca/ended/{name.removeprefix('ended_')}"] = _mean([r.scores[name] for r in records])
    if estimate:
        metrics |= _advantage_metrics(records, estimate)
    return metrics


def zero_spread_share(records: Sequence[RolloutRecord], reward: str) -> float:
    """The share of groups that give a segment no advantage: fewer than two graded, or all graded alike."""
    groups: dict[str, list[float]] = {}
    for record in records:
        value = getattr(record, reward)
        groups.setdefault(record.group, []).extend([] if value is None else [value])
    flat = [len(values) < 2 or max(values) - min(values) <= _SPREAD_TOLERANCE for values in groups.values()]
    return sum(flat) / len(flat)


def turn_advantages(records: Sequence[RolloutRecord], estimate: Estimator) -> list[list[float]]:
    """The advantage of each turn of each rollout.

    An estimator gives all tokens of a turn the same advantage, so one token a turn, with an observation
    between turns, stands for the whole response.
    """
    longest = max(len(record.turn_rewards) for record in records)
    mask = torch.zeros((len(records), 2 * longest), dtype=torch.bool)
    rewards = torch.zeros(mask.shape, dtype=torch.float32)
    for row, record in enumerate(records):
        turns = len(record.turn_rewards)
        mask[row, 0 : 2 * turns : 2] = True
        if turns:
            values = segment_token_rewards(record.tool_reward, record.summary_reward, record.turn_rewards)
            rewards[row, 0 : 2 * turns : 2] = torch.tensor(values)
    advantages = estimate(rewards, mask, [record.group for record in records])
    return [advantages[row, 0 : 2 * len(record.turn_rewards) : 2].tolist() for row, record in enumerate(records)]


def segment_token_rewards(
    tool_reward: float | None, summary_reward: float | None, turn_rewards: Sequence[float]
) -> list[float]:
    """The reward on the last token of each turn of a rollout: shares of the tool reward on the tool turns,
    which sum to it, and the summary reward on the last turn; `UNGRADED` for a reward of None.

    Rewards are rounded to multiples of 2^-20, which float32 holds and adds without error: equal tool rewards
    stay equal however many turns share them.
    """
    *tool_turns, _ = turn_rewards
    if tool_turns and tool_reward is None:
        tool_turns = [0.0] * (len(tool_turns) - 1) + [UNGRADED]
    elif tool_turns:
        tool_turns = [_rounded(reward) for reward in tool_turns]
        tool_turns[-1] += _rounded(tool_reward) - sum(tool_turns)
    return [*tool_turns, UNGRADED if summary_reward is None else _rounded(summary_reward)]


def _rounded(reward: float) -> float:
    # Adding 0.0 turns a minus zero into zero: as a reward it would read as `UNGRADED`.
    return round(reward * 2**20) / 2**20 + 0.0


def _advantage_metrics(records: Sequence[RolloutRecord], estimate: Estimator) -> dict[str, float]:
    by_segment: dict[str, list[float]] = {"tool": [], "summary": []}
    for advantages in turn_advantages(records, estimate):
        by_segment["tool"] += advantages[:-1]
        by_segment["summary"] += advantages[-1:]
    metrics: dict[str, float] = {}
    for name, values in by_segment.items():
        metrics |= _mean_and_std(f"slca/advantage/{name}", values)
        metrics[f"slca/advantage/{name}/min"] = min(values, default=0.0)
        metrics[f"slca/advantage/{name}/max"] = max(values, default=0.0)
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _mean_and_std(name: str, values: Sequence[float]) -> dict[str, float]:
    mean = _mean(values)
    variance = sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
    return {f"{name}/mean": mean, f"{name}/std": variance**0.5}
