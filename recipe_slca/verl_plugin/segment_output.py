"""Carries the segment rewards of one rollout to the estimator, inside verl's own `rm_scores`.

verl puts one scalar on a response's last token. This output puts each reward on the last token of its
segment instead, so that an estimator gets it back as the sum over the segment, and the sum over the whole
response stays what verl's metrics and `grpo` expect.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from recipe_slca import segments
from recipe_slca.metrics import TURN_REWARDS, segment_token_rewards


def write_rewards(
    mask: Tensor, tool_reward: float | None, summary_reward: float | None, turn_rewards: Sequence[float]
) -> Tensor:
    """Token rewards of one response: float32 [length] for a mask [length].

    Each turn's reward (`metrics.segment_token_rewards`) stands on the last token of its run. A response
    without learnable tokens carries none. Raises `ValueError` when there are not as many turn rewards as
    turns.
    """
    rewards = torch.zeros(mask.shape, dtype=torch.float32)
    ends = segments.find_runs(mask.unsqueeze(0)).end - 1
    if len(ends) != len(turn_rewards):
        raise ValueError(f"{len(turn_rewards)} turn rewards for {len(ends)} turns")
    if len(ends):
        rewards[ends] = torch.tensor(segment_token_rewards(tool_reward, summary_reward, turn_rewards))
    return rewards


class SegmentRewardOutput(AgentLoopOutput):
    """verl's output of one rollout, with rewards on the last tokens of the segments."""

    def as_dict(self) -> dict[str, Any]:
        output = super().as_dict()
        score: Mapping[str, Any] | None = self.extra_fields.get("reward_extra_info")
        if score is None:
            return output
        shown = dict(score)
        turn_rewards = shown.pop(TURN_REWARDS)
        output["extra_fields"]["reward_extra_info"] = shown
        output["rm_scores"] = write_rewards(
            output["response_mask"],
            score["tool_reward"] if score["tool_segment"] else None,
            None if score["ungraded"] else score["summary_reward"],
            turn_rewards,
        )
        return output
