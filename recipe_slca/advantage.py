"""Segment-locked credit (SLCA) and the estimators it is compared with: tensors in, tensors out.

Every estimator takes the same arguments and returns advantages of the rewards' shape and dtype:

    token_rewards [rows, length]  floating; each segment's reward stands on its tokens (usually on the last)
    mask          [rows, length]  1 where the policy wrote the token
    groups        [rows]          rollouts of one prompt share a value (verl's `uid`)

A segment's reward is the sum over its tokens; only policy tokens count. A reward of minus zero on a
segment's last token says "not graded": the rollout then takes no part in that segment's statistics and
its tokens of that segment get advantage 0. Plain zero is a grade.

Statistics are taken in float64 over [rows] vectors. Weights come after normalisation; before it they would
cancel. (METHOD 1, 2 and 6; arXiv 2609.29050.)
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recipe_slca import segments

EPSILON = 1e-6
# Sums and squares of rewards up to this size stay finite in float64, whatever the group size.
_LARGEST_REWARD = 1e150

UNGRADED = -0.0
"""Written on a segment's last token when its reward could not be determined."""


class SegmentRewards(NamedTuple):
    """Each row's reward, float64 [rows], and whether the segment is there and graded, bool [rows]; 0 if not."""

    reward: Tensor
    graded: Tensor


class _Batch(NamedTuple):
    """Checked inputs of an estimator, with what mask and rewards say of each run and row."""

    dtype: torch.dtype
    learnable: Tensor
    groups: Tensor
    runs: segments.Runs
    run_reward: Tensor
    tool: SegmentRewards
    summary: SegmentRewards


def slca(
    token_rewards: Tensor,
    mask: Tensor,
    groups: Sequence | np.ndarray | Tensor,
    weights: tuple[float, float] = (1.0, 1.0),
    norm_by_std: bool = True,
) -> Tensor:
    """Segment-locked advantages: each segment's reward, normalised over its group, on its own tokens only.

    weights: (tool, summary), multiply the normalised advantages. norm_by_std=False subtracts the mean alone.
    A group in which fewer than two rollouts have a graded segment gives that segment 0.

    Raises `ValueError` naming the argument for wrong shapes, a group index of another length, and rewards
    that are not finite. (METHOD 2.)
    """
    batch = _read(token_rewards, mask, groups)
    tool = _normalise(batch.tool, batch.groups, norm_by_std) * weights[0]
    summary = _normalise(batch.summary, batch.groups, norm_by_std) * weights[1]
    return _route(batch, tool, summary)


def slca_turn(
    token_rewards: Tensor,
    mask: Tensor,
    groups: Sequence | np.ndarray | Tensor,
    weights: tuple[float, float] = (1.0, 1.0),
    norm_by_std: bool = True,
    turn_weight: float = 0.5,
) -> Tensor:
    """`slca` with credit per turn inside the tool segment; the summary segment is the same as in `slca`.

    Each run of the tool segment carries its own share of the process reward. A turn's own reward is the
    segment's reward plus what its share has more than an equal share; plain shares would favour rollouts with
    few turns. Turns are normalised over all tool turns of the group, and a tool token gets (1 - turn_weight)
    of the segment's advantage and turn_weight of its turn's; turn_weight=0 is exactly `slca`. Beyond the paper.
    """
    batch = _read(token_rewards, mask, groups)
    tool = _normalise(batch.tool, batch.groups, norm_by_std) * weights[0]
    summary = _normalise(batch.summary, batch.groups, norm_by_std) * weights[1]
    if turn_weight == 0:
        return _route(batch, tool, summary)
    row = batch.runs.row
    is_tool = ~batch.runs.is_summary
    tool_turns = torch.zeros_like(batch.tool.reward).index_add_(0, row, is_tool.double())
    equal_share = batch.tool.reward / tool_turns.clamp(min=1)
    own_reward = batch.tool.reward[row] + batch.run_reward - equal_share[row]
    turn = SegmentRewards(own_reward, batch.tool.graded[row] & is_tool)
    turn_advantage = _normalise(turn, batch.groups[row], norm_by_std) * weights[0]
    per_turn = (1 - turn_weight) * tool[row] + turn_weight * turn_advantage
    return _route_runs(batch, per_turn.where(is_tool, summary[row]))


def toolpo(
    token_rewards: Tensor,
    mask: Tensor,
    groups: Sequence | np.ndarray | Tensor,
    tool_weight: float = 1.0,
    norm_by_std: bool = True,
) -> Tensor:
    """The ToolPO baseline: all tokens share the advantage of the summed reward, tool tokens get
    `tool_weight` times the tool advantage on top. (METHOD 6.)"""
    batch = _read(token_rewards, mask, groups)
    total = SegmentRewards(batch.tool.reward + batch.summary.reward, batch.tool.graded | batch.summary.graded)
    shared = _normalise(total, batch.groups, norm_by_std)
    tool = _normalise(batch.tool, batch.groups, norm_by_std)
    return _route(batch, shared + tool_weight * tool, shared)


def rltr(
    token_rewards: Tensor,
    mask: Tensor,
    groups: Sequence | np.ndarray | Tensor,
    norm_by_std: bool = True,
) -> Tensor:
    """The RLTR planner baseline: tool tokens get the tool advantage, summary tokens 0. (METHOD 6.)"""
    batch = _read(token_rewards, mask, groups)
    tool = _normalise(batch.tool, batch.groups, norm_by_std)
    return _route(batch, tool, torch.zeros_like(tool))


def segment_rewards(token_rewards: Tensor, mask: Tensor) -> tuple[SegmentRewards, SegmentRewards]:
    """The tool and the summary reward of each row, as `slca` reads them. Raises `ValueError` as it does."""
    batch = _read(token_rewards, mask, torch.zeros(token_rewards.shape[:1], dtype=torch.int64))
    return batch.tool, batch.summary


def group_index(groups: Sequence | np.ndarray | Tensor, rows: int, device: torch.device) -> Tensor:
    """Number the groups: [rows] int64, equal where the given values are equal.

    Raises `ValueError` when `groups` does not hold one value for each row.
    """
    values = groups.cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
    if values.shape != (rows,):
        raise ValueError(f"groups must hold one value for each of {rows} rows, got shape {values.shape}")
    numbers: dict = {}
    index = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
    return torch.tensor(index, dtype=torch.int64, device=device)


def _read(token_rewards: Tensor, mask: Tensor, groups: Sequence | np.ndarray | Tensor) -> _Batch:
    if token_rewards.dim() != 2:
        raise ValueError(f"token_rewards must be [rows, length], got shape {tuple(token_rewards.shape)}")
    if not token_rewards.is_floating_point():
        raise ValueError(f"token_rewards must be floating, got {token_rewards.dtype}")
    if mask.shape != token_rewards.shape:
        raise ValueError(f"mask has shape {tuple(mask.shape)}, token_rewards {tuple(token_rewards.shape)}")
    # The row sums are finite unless a reward is not or they overflow; looking at each reward costs more.
    if not token_rewards.sum(-1).isfinite().all() and not token_rewards.isfinite().all():
        raise ValueError("token_rewards must be finite")
    rows = token_rewards.shape[0]
    group_numbers = group_index(groups, rows, token_rewards.device)
    learnable = mask.bool()
    runs = segments.find_runs(learnable)
    run_reward = _run_rewards(token_rewards, learnable, runs)
    at_end = token_rewards[runs.row, runs.end - 1]
    graded = ~((at_end == 0) & at_end.signbit())

    def of_rows(member: Tensor, decides: Tensor) -> SegmentRewards:
        reward = run_reward.new_zeros(rows).index_add_(0, runs.row[member], run_reward[member])
        is_graded = torch.zeros(rows, dtype=torch.bool, device=mask.device)
        is_graded[runs.row[decides]] = graded[decides]
        return SegmentRewards(reward.clamp(-_LARGEST_REWARD, _LARGEST_REWARD).where(is_graded, 0), is_graded)

    tool = of_rows(~runs.is_summary, runs.ends_tool_segment)
    summary = of_rows(runs.is_summary, runs.is_summary)
    return _Batch(token_rewards.dtype, learnable, group_numbers, runs, run_reward, tool, summary)


def _run_rewards(token_rewards: Tensor, learnable: Tensor, runs: segments.Runs) -> Tensor:
    """The sum of each run's rewards, float64 [runs]. Rewards are sparse (one or so a run), so this visits
    only those that are not zero."""
    row, position = token_rewards.nonzero(as_tuple=True)
    on_policy = learnable[row, position]
    row, position = row[on_policy], position[on_policy]
    length = token_rewards.shape[1]
    run = torch.searchsorted(runs.row * length + runs.start, row * length + position, right=True) - 1
    sums = torch.zeros(runs.row.shape, dtype=torch.float64, device=token_rewards.device)
    sums.index_add_(0, run, token_rewards[row, position].double())
    return sums.clamp(-_LARGEST_REWARD, _LARGEST_REWARD)


def _normalise(segment: SegmentRewards, groups: Tensor, norm_by_std: bool) -> Tensor:
    """Normalise rewards over the graded members of each group; fewer than two graded give 0."""
    number_of_groups = int(groups.max()) + 1 if groups.numel() else 0
    graded = segment.graded.to(torch.float64)
    # Measured from the group's least reward, equal rewards are all 0: no rounding is left to be normalised.
    least = segment.reward.new_zeros(number_of_groups).scatter_reduce(
        0, groups[segment.graded], segment.reward[segment.graded].detach(), "amin", include_self=False
    )
    reward = (segment.reward - least[groups]) * graded

    def group_sum(values: Tensor) -> Tensor:
        sums = torch.zeros(number_of_groups, dtype=torch.float64, device=groups.device)
        return sums.index_add_(0, groups, values)[groups]

    count = group_sum(graded)
    centred = (reward - group_sum(reward) / count.clamp(min=1)) * graded
    comparable = (count >= 2) & segment.graded
    if not norm_by_std:
        return centred.where(comparable, 0)
    variance = group_sum(centred.square()) / (count - 1).clamp(min=1)
    return (centred / (variance.sqrt() + EPSILON)).where(comparable, 0)


def _route(batch: _Batch, tool: Tensor, summary: Tensor) -> Tensor:
    """Give each segment's advantage [rows] to its own tokens; exactly 0 elsewhere."""
    row = batch.runs.row
    return _route_runs(batch, summary[row].where(batch.runs.is_summary, tool[row]))


def _route_runs(batch: _Batch, per_run: Tensor) -> Tensor:
    """Give each run's advantage [runs] to its own tokens; exactly 0 elsewhere."""
    largest = torch.finfo(batch.dtype).max
    per_run = per_run.clamp(-largest, largest).to(batch.dtype)
    return segments.spread(per_run, batch.runs, batch.learnable)
