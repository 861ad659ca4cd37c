"""The rewards on the last tokens of the segments, as the estimator gets them back."""

import math

import pytest
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from recipe_slca import advantage
from recipe_slca.verl_plugin.segment_output import SegmentRewardOutput, write_rewards

MASK = [1, 1, 0, 1, 0, 0, 1, 1, 1]


def output(mask, **score) -> SegmentRewardOutput:
    result = SegmentRewardOutput(
        prompt_ids=[1], response_ids=list(range(len(mask))), response_mask=mask, metrics=AgentLoopMetrics()
    )
    result.reward_score = 0.0
    result.extra_fields = {"reward_extra_info": {"tool_segment": 1.0, "ungraded": 0.0, **score}}
    return result


def test_rewards_come_back_as_sums_over_the_segments():
    scored = output(MASK, tool_reward=0.75, summary_reward=0.5, turn_rewards=[0.5, 0.25, 0.0])
    token_rewards = scored.as_dict()["rm_scores"]
    assert token_rewards.tolist() == [0, 0.5, 0, 0.25, 0, 0, 0, 0, 0.5]
    tool, summary = advantage.segment_rewards(token_rewards.unsqueeze(0), torch.tensor([MASK]))
    assert (tool.reward.item(), summary.reward.item()) == (0.75, 0.5)
    assert token_rewards.sum().item() == 1.25


def test_turn_rewards_are_not_among_the_scores_that_verl_averages():
    fields = output(MASK, tool_reward=0.5, summary_reward=0.5, turn_rewards=[0.25, 0.25, 0]).as_dict()["extra_fields"]
    assert all(isinstance(value, float) for value in fields["reward_extra_info"].values())


@pytest.mark.parametrize(("tool", "summary", "graded"), [(None, 0.5, (False, True)), (0.5, None, (True, False))])
def test_ungraded_is_not_zero(tool, summary, graded):
    rewards = write_rewards(torch.tensor(MASK), tool, summary, [0.25, 0.25, 0.0]).unsqueeze(0)
    segments_graded = advantage.segment_rewards(rewards, torch.tensor([MASK]))
    assert tuple(bool(segment.graded) for segment in segments_graded) == graded


def test_reward_of_minus_zero_is_a_grade():
    rewards = write_rewards(torch.tensor(MASK), -0.0, -0.0, [-0.0, -0.0, 0.0])
    assert not any(math.copysign(1, reward) < 0 for reward in rewards.tolist())


def test_single_turn_has_no_tool_segment():
    assert write_rewards(torch.tensor([1, 1]), None, -0.5, [0.0]).tolist() == [0, -0.5]


def test_response_without_learnable_tokens_carries_nothing():
    assert write_rewards(torch.tensor([0]), None, 0.5, []).tolist() == [0]


def test_turns_that_do_not_fit_the_mask_are_an_error():
    with pytest.raises(ValueError, match="2 turn rewards for 3 turns"):
        write_rewards(torch.tensor(MASK), 0.5, 0.5, [0.5, 0.0])


def test_equal_tool_rewards_stay_equal_however_many_turns_share_them():
    width = 16
    rows, masks = [], []
    for turns in range(1, 8):
        mask = torch.tensor([1, 0] * turns + [1] + [0] * (width - 2 * turns - 1))
        rows.append(write_rewards(mask, 0.7, 0.3, [0.7 / turns] * turns + [0.0]))
        masks.append(mask)
    advantages = advantage.slca(torch.stack(rows), torch.stack(masks), ["group"] * 7)
    assert not advantages.any()
