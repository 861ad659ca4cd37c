"""Metrics of a step's rollouts: the same keys whatever happened, and advantages as the trainer computes them."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_batches import mask_of

from recipe_slca import advantage
from recipe_slca.hierr.hierr import SUCCESS_THRESHOLDS
from recipe_slca.metrics import (
    RolloutRecord,
    segment_token_rewards,
    step_metrics,
    turn_advantages,
    zero_spread_share,
)

SCORES = ("process", "format", "name", "key", "value", "parallel", "name_f1", "arg_match", "tool_segment")
SCORES += ("ungraded", "omission", "calls", "tool_turns", "redundant_calls", "ended_replied", "ended_aborted")
SCORES += tuple(f"success_{threshold}" for threshold in SUCCESS_THRESHOLDS)
NORMALISED = partial(advantage.slca, weights=(0.7, 0.3))


def record(group: str = "a", tool: float | None = None, summary: float | None = None, *shares: float, **scores: float):
    """A rollout with one turn more than it has shares of the tool reward; without, a tool reward is one turn's."""
    tool_turns = list(shares) or ([tool] if tool is not None else [])
    return RolloutRecord(group, 0, tool, summary, [*tool_turns, 0.0], dict.fromkeys(SCORES, 0.0) | scores)


ROLLOUTS = {
    "graded": [
        record("a", 1.0, 0.5, 0.75, 0.25),
        record("a", 0.5, 1.0),
        record("b", None, 0.0),
        record("b", 0.2, None),
    ],
    "no tool segment": [record("a", None, 0.5), record("a", None, 0.75)],
    "nothing graded": [record("a"), record("a"), record("b")],
    "one rollout": [record("a", 0.5, 0.5)],
    "no turn": [RolloutRecord("a", 0, None, None, [], dict.fromkeys(SCORES, 0.0)), record("a", 0.5, 0.5)],
    "no turn at all": [RolloutRecord("a", 0, None, None, [], dict.fromkeys(SCORES, 0.0))],
}


@pytest.mark.parametrize("estimate", [None, NORMALISED, advantage.slca_turn], ids=["none", "slca", "slca_turn"])
def test_the_keys_are_the_same_whatever_the_rollouts_were(estimate):
    steps = {name: step_metrics(records, estimate) for name, records in ROLLOUTS.items()}
    expected = set(steps["graded"])
    for name, metrics in steps.items():
        assert set(metrics) == expected, name
        assert all(key.startswith("slca/") for key in metrics)
        assert all(type(value) is float and math.isfinite(value) for value in metrics.values()), name
    assert {"slca/success@0.9", "slca/ended/replied", "slca/ungraded_share", "slca/zero_spread/tool"} <= expected
    assert ("slca/advantage/tool/min" in expected) == (estimate is not None)


def test_without_rollouts_there_are_no_metrics():
    assert step_metrics([]) == {}


def test_means_and_spreads():
    metrics = step_metrics(
        [
            record(tool=1.0, summary=0.5, process=1.0, calls=3.0),
            record(tool=0.5, process=0.5, calls=1.0),
            record(process=0),
        ]
    )
    assert metrics["slca/rollouts"] == 3.0
    assert metrics["slca/reward/process/mean"] == pytest.approx(0.5)
    assert metrics["slca/reward/process/std"] == pytest.approx(0.5)
    assert metrics["slca/reward/tool/mean"] == pytest.approx(0.75)  # of the two that have one
    assert metrics["slca/reward/summary/mean"] == pytest.approx(0.5)
    assert metrics["slca/reward/summary/std"] == 0.0
    assert metrics["slca/calls"] == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("rewards", "share"),
    [
        ({"a": [1.0, 0.5]}, 0.0),
        ({"a": [1.0, 1.0]}, 1.0),
        ({"a": [1.0, 1.0 + 1e-12]}, 1.0),
        ({"a": [1.0]}, 1.0),
        ({"a": [None, None, 0.5]}, 1.0),
        ({"a": [None, 0.25, 0.5]}, 0.0),
        ({"a": [None]}, 1.0),
        ({"a": [1.0, 0.0], "b": [0.5, 0.5], "c": [None, None], "d": [0.5, 0.75]}, 0.5),
    ],
)
def test_groups_without_spread(rewards: dict[str, list[float | None]], share: float):
    records = [record(group, value) for group, values in rewards.items() for value in values]
    assert zero_spread_share(records, "tool_reward") == share


@pytest.mark.parametrize("rewards", [[0.3, 0.7], [0.5, 0.5], [0.5], [None, 0.5]])
def test_a_group_without_spread_is_one_without_advantage(rewards: list[float | None]):
    records = [record("a", value) for value in rewards]
    tool_advantages = [abs(value) for turns in turn_advantages(records, advantage.slca) for value in turns[:-1]]
    assert (zero_spread_share(records, "tool_reward") == 1.0) == (max(tool_advantages) < 1e-6)


SHARES = st.lists(st.floats(-2, 2, width=32), max_size=4)
GRADES = st.none() | st.floats(-1, 1, width=32)
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), SHARES, st.booleans(), GRADES), min_size=1, max_size=6)


@settings(deadline=None)
@given(RECORDS)
def test_turn_advantages_are_those_of_the_tokens(drawn):
    """On a real mask, turns and observations have any length; the advantage of a turn is that of its tokens."""
    records = []
    for group, shares, graded, summary in drawn:
        tool = sum(shares) if shares and graded else None
        records.append(RolloutRecord(group, 0, tool, summary, [*shares, 0.0], {}))
    rows = ["".join("1" * (2 + turn) + "00" for turn in range(len(rec.turn_rewards))) for rec in records]
    mask = mask_of(*(row.ljust(40, "0") for row in rows))
    rewards = torch.zeros(mask.shape)
    ends = [[at for at in range(len(row)) if row[at : at + 2] == "10"] for row in rows]
    for row, rec in enumerate(records):
        values = segment_token_rewards(rec.tool_reward, rec.summary_reward, rec.turn_rewards)
        rewards[row, ends[row]] = torch.tensor(values)
    for estimate in (advantage.slca, advantage.slca_turn, advantage.toolpo, advantage.rltr):
        found = estimate(rewards, mask, [rec.group for rec in records])
        on_tokens = [found[row, positions].tolist() for row, positions in enumerate(ends)]
        assert turn_advantages(records, estimate) == on_tokens


@settings(deadline=None)
@given(SHARES, GRADES)
def test_segment_token_rewards_sum_to_the_segment_rewards(shares: list[float], summary: float | None):
    tool = math.fsum(shares) if shares else None
    *tool_turns, last = segment_token_rewards(tool, summary, [*shares, 0.0])
    # Exactly, on the grid of 2^-20 on which float32 adds without error.
    assert sum(tool_turns) == round((tool or 0.0) * 2**20) / 2**20
    assert last == round((summary or 0.0) * 2**20) / 2**20


def test_none_is_written_as_ungraded_and_zero_as_a_grade():
    def is_minus_zero(value: float) -> bool:
        return value == 0 and math.copysign(1, value) < 0

    ungraded = segment_token_rewards(None, None, [0.5, 0.5, 0.0])
    assert ungraded == [0, 0, 0]
    assert [is_minus_zero(value) for value in ungraded] == [False, True, True]
    graded = segment_token_rewards(-0.0, -0.0, [-0.0, -0.0, 0.0])
    assert graded == [0, 0, 0]
    assert not any(map(is_minus_zero, graded))
