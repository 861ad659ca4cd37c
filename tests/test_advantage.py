"""The estimators: against a reference written as loops, and the properties that the method promises."""

import math
import statistics
import sys
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_batches import Batch, batches, mask_of
from torch import Tensor

from recipe_slca import advantage, segments
from recipe_slca.advantage import UNGRADED
from recipe_slca.hierr.process import score_process
from recipe_slca.tool_calls import ToolCall, render

ESTIMATORS = {
    "slca": advantage.slca,
    "slca_turn": advantage.slca_turn,
    "toolpo": advantage.toolpo,
    "rltr": advantage.rltr,
}
SEGMENT_LOCKED = ("slca", "slca_turn", "rltr")
by_name = pytest.mark.parametrize("name", ESTIMATORS)


def property_test(examples: int = 100):
    return settings(deadline=None, max_examples=examples)


# The reference: rows, runs and tokens one after the other, as METHOD states them.


class Rollout:
    """One row read token by token: the runs of its mask, and the reward and grading of its two segments."""

    def __init__(self, rewards: list[float], bits: list[bool]):
        self.length = len(bits)
        self.runs: list[list[int]] = []
        for position, bit in enumerate(bits):
            if bit and position and bits[position - 1]:
                self.runs[-1].append(position)
            elif bit:
                self.runs.append([position])
        self.turn_rewards = [math.fsum(rewards[position] for position in run) for run in self.runs]
        self.rewards, self.graded = {}, {}
        for segment, turns in (("tool", self.runs[:-1]), ("summary", self.runs[-1:])):
            last = rewards[turns[-1][-1]] if turns else UNGRADED
            self.graded[segment] = not (last == 0 and math.copysign(1, last) < 0)
            counted = turns if self.graded[segment] else []
            self.rewards[segment] = math.fsum(rewards[position] for run in counted for position in run)


def normalise(values: dict, groups: dict, norm_by_std: bool) -> dict:
    """Values by member to advantages by member, over the members of each group; fewer than two give 0."""
    members = defaultdict(list)
    for member in values:
        members[groups[member]].append(member)
    advantages = {}
    for group in members.values():
        if len(group) < 2:
            advantages |= dict.fromkeys(group, 0.0)
            continue
        mean = statistics.fmean(values[member] for member in group)
        spread = statistics.stdev(values[member] for member in group) + 1e-6 if norm_by_std else 1.0
        advantages |= {member: (values[member] - mean) / spread for member in group}
    return advantages


def reference(name: str, batch: Batch, norm_by_std: bool = True, **options) -> Tensor:
    rollouts = [Rollout(*row) for row in zip(batch.rewards.tolist(), batch.mask.tolist(), strict=True)]
    groups = dict(enumerate(batch.groups))

    def segment_advantage(segment: str) -> dict:
        graded = {row: rollout.rewards[segment] for row, rollout in enumerate(rollouts) if rollout.graded[segment]}
        return normalise(graded, groups, norm_by_std)

    tool, summary = segment_advantage("tool"), segment_advantage("summary")
    total = normalise(
        {row: sum(rollout.rewards.values()) for row, rollout in enumerate(rollouts) if any(rollout.graded.values())},
        groups,
        norm_by_std,
    )
    own = {}
    for row, rollout in enumerate(rollouts):
        turns = len(rollout.runs) - 1
        for turn in range(turns if rollout.graded["tool"] else 0):
            whole = rollout.rewards["tool"]
            own[row, turn] = whole + rollout.turn_rewards[turn] - whole / turns
    per_turn = normalise(own, {(row, turn): groups[row] for row, turn in own}, norm_by_std)

    weights = options.get("weights", (1.0, 1.0))
    advantages = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for row, rollout in enumerate(rollouts):
        for turn, run in enumerate(rollout.runs):
            is_summary = turn == len(rollout.runs) - 1
            if name == "toolpo":
                value = total.get(row, 0.0)
                value += 0.0 if is_summary else options.get("tool_weight", 1.0) * tool.get(row, 0.0)
            elif is_summary:
                value = 0.0 if name == "rltr" else weights[1] * summary.get(row, 0.0)
            elif name == "slca_turn":
                share = options.get("turn_weight", 0.5)
                value = (1 - share) * tool.get(row, 0.0) + share * per_turn.get((row, turn), 0.0)
                value *= weights[0]
            else:
                value = weights[0] * tool.get(row, 0.0)
            advantages[row, run] = value
    return advantages


@by_name
@property_test(150)
@given(batch=batches(), norm_by_std=st.booleans())
def test_estimators_agree_with_the_reference(name: str, batch: Batch, norm_by_std: bool):
    found = ESTIMATORS[name](batch.rewards, batch.mask, batch.groups, norm_by_std=norm_by_std)
    expected = reference(name, batch, norm_by_std)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-8)


@property_test()
@given(batch=batches(), tool=st.floats(0, 5), summary=st.floats(0, 5), share=st.floats(0, 1))
def test_weights_agree_with_the_reference(batch: Batch, tool: float, summary: float, share: float):
    arguments = (batch.rewards, batch.mask, batch.groups)
    for name, options in (
        ("slca", {"weights": (tool, summary)}),
        ("slca_turn", {"weights": (tool, summary), "turn_weight": share}),
        ("toolpo", {"tool_weight": tool}),
    ):
        found = ESTIMATORS[name](*arguments, **options)
        assert torch.allclose(found, reference(name, batch, **options), rtol=1e-9, atol=1e-7), name


# Credit stays in its segment.


def changed(batch: Batch, segment: str, values: list[float]) -> Batch:
    size = len(batch.run_rewards)
    return batch.with_segment(segment, torch.tensor((values * size)[:size], dtype=torch.float64))


OTHER_REWARDS = st.lists(st.floats(-1e6, 1e6) | st.just(UNGRADED), min_size=1, max_size=12)


@pytest.mark.parametrize("name", SEGMENT_LOCKED)
@property_test()
@given(batch=batches(), values=OTHER_REWARDS, norm_by_std=st.booleans())
def test_no_summary_reward_moves_a_tool_advantage_by_a_bit(name, batch: Batch, values, norm_by_std: bool):
    other = changed(batch, "summary", values)
    tool, _ = segments.split(batch.mask)
    before, after = (ESTIMATORS[name](b.rewards, b.mask, b.groups, norm_by_std=norm_by_std) for b in (batch, other))
    assert torch.equal(before[tool], after[tool])


@pytest.mark.parametrize("name", SEGMENT_LOCKED)
@property_test()
@given(batch=batches(), values=OTHER_REWARDS, norm_by_std=st.booleans())
def test_no_tool_reward_moves_a_summary_advantage_by_a_bit(name, batch: Batch, values, norm_by_std: bool):
    other = changed(batch, "tool", values)
    _, summary = segments.split(batch.mask)
    before, after = (ESTIMATORS[name](b.rewards, b.mask, b.groups, norm_by_std=norm_by_std) for b in (batch, other))
    assert torch.equal(before[summary], after[summary])


def test_a_shared_advantage_does_move():
    """ToolPO's shared part is what segment-locked credit takes away; the tests above could not fail without it."""
    batch = Batch(mask_of("11011", "11011"), ["a", "a"], torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tool, _ = segments.split(batch.mask)
    before, after = (advantage.toolpo(b.rewards, b.mask, b.groups) for b in (batch, changed(batch, "summary", [5.0])))
    assert not torch.equal(before[tool], after[tool])


@by_name
@property_test()
@given(batch=batches(rows=st.integers(1, 8)), data=st.data())
def test_permuting_rows_permutes_results(name: str, batch: Batch, data):
    order = data.draw(st.permutations(range(len(batch.groups))))
    straight = ESTIMATORS[name](batch.rewards, batch.mask, batch.groups)
    permuted = ESTIMATORS[name](batch.rewards[order], batch.mask[order], [batch.groups[row] for row in order])
    assert torch.allclose(permuted, straight[order], rtol=1e-9, atol=1e-8)


@by_name
@property_test()
@given(batch=batches(rows=st.integers(2, 8)))
def test_a_group_is_not_touched_by_the_others(name: str, batch: Batch):
    kept = [row for row, group in enumerate(batch.groups) if group == batch.groups[0]]
    whole = ESTIMATORS[name](batch.rewards, batch.mask, batch.groups)
    alone = ESTIMATORS[name](batch.rewards[kept], batch.mask[kept], [batch.groups[row] for row in kept])
    assert torch.equal(alone, whole[kept])


# Where there is nothing to compare, the advantage is 0.


@by_name
@property_test()
@given(batch=batches(values=st.floats(-1e6, 1e6)))
def test_a_group_of_one_has_no_advantage(name: str, batch: Batch):
    if name == "slca_turn":  # turns of one rollout are compared with each other; its segments are not
        _, summary = segments.split(batch.mask)
        found = advantage.slca_turn(batch.rewards, batch.mask, range(len(batch.groups)))[summary]
    else:
        found = ESTIMATORS[name](batch.rewards, batch.mask, range(len(batch.groups)))
    assert not found.any()


@by_name
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0, -0.5, 1 / 3, 1e8, 1e100, 1e308])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("norm_by_std", [True, False])
def test_equal_rewards_have_no_advantage(name: str, reward: float, dtype: torch.dtype, norm_by_std: bool):
    """Not even what the rounding of a mean leaves over, which normalising would blow up."""
    reward = min(reward, torch.finfo(dtype).max)
    batch = Batch(mask_of(*["1101100111"] * 7), ["a"] * 7, torch.full((21,), reward, dtype=dtype))
    assert not ESTIMATORS[name](batch.rewards, batch.mask, batch.groups, norm_by_std=norm_by_std).any()


@pytest.mark.parametrize("name", SEGMENT_LOCKED)
def test_rollouts_without_a_segment_take_no_part_in_it(name: str):
    mask = mask_of("1101", "1101", "1111", "0000")
    rewards = torch.zeros(mask.shape)
    rewards[:, 3] = torch.tensor([0.2, 0.4, 0.9, 0.0])
    rewards[0, 1], rewards[1, 1] = 1.0, 0.0
    found = ESTIMATORS[name](rewards, mask, ["a"] * 4)
    assert torch.allclose(found[:2, :2], torch.tensor([[0.7071], [-0.7071]]).expand(2, 2), atol=1e-4)
    assert not found[3].any()
    if name != "rltr":
        assert torch.allclose(found[:3, 3], torch.tensor([-0.8321, -0.2774, 1.1094]), atol=1e-4)


# Ungraded segments; minus zero is not zero.


@pytest.mark.parametrize("segment", ["tool", "summary"])
@pytest.mark.parametrize("name", ["slca", "slca_turn"])
@property_test(50)
@given(batch=batches(ungraded=False, rows=st.integers(2, 6)), row=st.integers(0, 5))
def test_an_ungraded_segment_counts_like_an_absent_one(name: str, segment: str, batch: Batch, row: int):
    row %= len(batch.groups)
    runs = segments.find_runs(batch.mask)
    hidden = (runs.row == row) & (runs.is_summary == (segment == "summary"))
    ungraded = Batch(batch.mask, batch.groups, batch.run_rewards.masked_fill(hidden, UNGRADED))
    found = ESTIMATORS[name](ungraded.rewards, batch.mask, batch.groups)
    part = segments.split(batch.mask)[segment == "summary"]
    others = [other for other in range(len(batch.groups)) if other != row]
    without = ESTIMATORS[name](batch.rewards[others], batch.mask[others], [batch.groups[o] for o in others])
    assert not found[row][part[row]].any()
    assert torch.allclose(found[others][part[others]], without[part[others]], rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_zero_is_a_grade_and_minus_zero_is_none(dtype: torch.dtype):
    mask = mask_of("11", "11", "11")
    graded = advantage.slca(torch.tensor([[0, 1.0], [0, 0.5], [0, 0.0]], dtype=dtype), mask, ["a"] * 3)
    assert torch.allclose(graded[:, 0].double(), torch.tensor([1.0, 0, -1], dtype=torch.float64), atol=1e-2)
    ungraded = advantage.slca(torch.tensor([[0, 1.0], [0, 0.5], [0, -0.0]], dtype=dtype), mask, ["a"] * 3)
    assert torch.allclose(ungraded[:, 0].double(), torch.tensor([0.707, -0.707, 0], dtype=torch.float64), atol=1e-2)


def test_only_the_last_token_of_a_segment_says_whether_it_is_graded():
    rewards = torch.tensor([[-0.0, -0.0, 0.0, -0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 1.0]])
    tool, summary = advantage.segment_rewards(rewards, mask_of("11011", "11011"))
    assert tool.graded.tolist() == [False, True]
    assert summary.graded.tolist() == [True, True]
    assert summary.reward.tolist() == [0.0, 1.0]


def test_what_an_ungraded_segment_holds_on_other_tokens_moves_no_estimator():
    mask = mask_of("1101011", "1101011", "1101011")
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    rewards[:, [3, 6]] = torch.tensor([[UNGRADED, 0.3], [0.5, 0.1], [0.9, 0.8]], dtype=torch.float64)
    noisy = rewards.clone()
    noisy[0, 1] = 7.0
    for name, estimate in ESTIMATORS.items():
        assert torch.equal(estimate(rewards, mask, ["a"] * 3), estimate(noisy, mask, ["a"] * 3)), name


@by_name
@property_test()
@given(batch=batches(), noise=st.floats(-1e3, 1e3))
def test_rewards_outside_the_mask_do_not_count(name: str, batch: Batch, noise: float):
    noisy = batch.rewards.where(batch.mask, noise)
    found = ESTIMATORS[name](noisy, batch.mask, batch.groups)
    assert torch.equal(found, ESTIMATORS[name](batch.rewards, batch.mask, batch.groups))
    assert not found[~batch.mask].any()


@property_test()
@given(batch=batches(ungraded=False), data=st.data())
def test_a_segments_reward_may_stand_on_any_of_its_tokens(batch: Batch, data):
    runs = segments.find_runs(batch.mask)
    moved = torch.zeros(batch.mask.shape, dtype=torch.float64)
    for row, start, end, reward in zip(runs.row, runs.start, runs.end, batch.run_rewards, strict=True):
        moved[row, data.draw(st.integers(int(start), int(end) - 1))] = reward
    assert torch.equal(
        advantage.slca(moved, batch.mask, batch.groups), advantage.slca(batch.rewards, batch.mask, batch.groups)
    )


# Weights and the relations between the estimators.


@property_test()
@given(batch=batches(), tool=st.sampled_from([0.0, 0.5, 2.0]), summary=st.sampled_from([0.0, 0.25, 4.0]))
def test_weights_come_after_normalisation(batch: Batch, tool: float, summary: float):
    """Powers of two scale without rounding; before normalisation they would cancel."""
    arguments = (batch.rewards, batch.mask, batch.groups)
    plain, weighted = advantage.slca(*arguments), advantage.slca(*arguments, weights=(tool, summary))
    tool_mask, summary_mask = segments.split(batch.mask)
    assert torch.equal(weighted[tool_mask], plain[tool_mask] * tool)
    assert torch.equal(weighted[summary_mask], plain[summary_mask] * summary)


@property_test()
@given(batch=batches())
def test_rltr_is_slca_without_its_summary(batch: Batch):
    arguments = (batch.rewards, batch.mask, batch.groups)
    assert torch.equal(advantage.rltr(*arguments), advantage.slca(*arguments, weights=(1.0, 0.0)))


@property_test()
@given(batch=batches(), norm_by_std=st.booleans())
def test_slca_turn_without_turn_weight_is_slca(batch: Batch, norm_by_std: bool):
    arguments = (batch.rewards, batch.mask, batch.groups, (0.7, 0.3), norm_by_std)
    assert torch.equal(advantage.slca_turn(*arguments, turn_weight=0), advantage.slca(*arguments))


@property_test()
@given(batch=batches(), share=st.floats(0, 1))
def test_slca_turn_leaves_the_summary_as_slca_has_it(batch: Batch, share: float):
    arguments = (batch.rewards, batch.mask, batch.groups)
    _, summary = segments.split(batch.mask)
    found = advantage.slca_turn(*arguments, turn_weight=share)
    assert torch.equal(found[summary], advantage.slca(*arguments)[summary])


@property_test()
@given(batch=batches(ungraded=False, rows=st.integers(1, 8)), norm_by_std=st.booleans())
def test_toolpo_without_its_tool_term_is_verls_grpo(batch: Batch, norm_by_std: bool):
    """They part where METHOD parts from verl: a group of one, and rollouts without any token."""
    core_algos = pytest.importorskip("verl.trainer.ppo.core_algos")
    mask = batch.mask.clone()
    mask[:, 0] = True
    batch = Batch(mask, batch.groups, batch.run_rewards.new_ones(len(segments.find_runs(mask).row)).cumsum(0).sin())
    found = advantage.toolpo(batch.rewards, mask, batch.groups, tool_weight=0.0, norm_by_std=norm_by_std)
    expected, _ = core_algos.compute_grpo_outcome_advantage(
        batch.rewards, mask, np.array(batch.groups, dtype=object), norm_adv_by_std_in_grpo=norm_by_std
    )
    compared = [row for row, group in enumerate(batch.groups) if batch.groups.count(group) > 1]
    assert torch.allclose(found[compared], expected[compared], rtol=1e-6, atol=1e-6)


# What the method is for: numbers as HierR gives them.

GOLD = [[{"name": "find", "arguments": {"city": "Oslo"}}], [{"name": "book", "arguments": {"night": "1"}}]]
FIND, BOOK, WRONG = (
    render([ToolCall("find", {"city": "Oslo"})]),
    render([ToolCall("book", {"night": "1"})]),
    render([ToolCall("cancel", {"night": "1"})]),
)


def process_batch(*rollouts: list[str]) -> Batch:
    """A group of rollouts (their tool turns), with the turn rewards of HierR and a summary reward of 0.5 each."""
    rewards, rows = [], []
    for tool_turns in rollouts:
        score = score_process([*tool_turns, "It is done."], GOLD, ["find", "book", "cancel"])
        rewards += [*score.turn_rewards[:-1], 0.5]
        rows.append(("110" * (len(tool_turns) + 1)).ljust(12, "0"))
    return Batch(mask_of(*rows), ["a"] * len(rollouts), torch.tensor(rewards, dtype=torch.float32))


def turn_advantages(estimate, batch: Batch) -> list[list[float]]:
    found = estimate(batch.rewards, batch.mask, batch.groups)
    starts = [[start for start in range(0, 12, 3) if bits[start]] for bits in batch.mask.tolist()]
    return [found[row, row_starts[:-1]].tolist() for row, row_starts in enumerate(starts)]


def test_a_right_first_call_and_a_wrong_second_one_are_told_apart():
    batch = process_batch([FIND, WRONG], [FIND, BOOK], [WRONG, WRONG], [FIND, BOOK])
    plain = turn_advantages(advantage.slca, batch)[0]
    assert plain[0] == plain[1]
    right, wrong = turn_advantages(advantage.slca_turn, batch)[0]
    assert right > 0 > wrong


def test_a_wrong_call_fares_worse_than_a_right_one_whatever_their_order():
    batch = process_batch([WRONG, FIND], [FIND, WRONG], [FIND, BOOK])
    first, second, _ = turn_advantages(advantage.slca_turn, batch)
    assert first[0] < first[1]
    assert second[0] > second[1]


def test_a_redundant_turn_does_not_pay():
    lean, redundant = turn_advantages(advantage.slca_turn, process_batch([FIND, BOOK], [FIND, BOOK, FIND]))
    assert lean == pytest.approx([lean[0]] * 2)
    assert redundant[2] < min(lean)
    assert redundant[2] < min(redundant[:2])


# Inputs as a trainer may hand them over, and inputs that no trainer should.


@by_name
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float32], ids=str)
def test_the_dtype_of_the_rewards_is_kept(name: str, dtype: torch.dtype, mask_dtype: torch.dtype):
    batch = Batch(mask_of("11011", "11011", "11111"), ["a"] * 3, torch.tensor([0.5, 1, 0.25, 0.5, 1], dtype=dtype))
    found = ESTIMATORS[name](batch.rewards, batch.mask.to(mask_dtype), batch.groups)
    assert found.dtype == dtype
    expected = reference(name, Batch(batch.mask.bool(), batch.groups, batch.run_rewards.double()))
    assert torch.allclose(found.double(), expected, atol=1e-2)


LARGEST = {
    torch.float64: sys.float_info.max,
    torch.float32: torch.finfo(torch.float32).max,
    torch.bfloat16: torch.finfo(torch.bfloat16).max,
    torch.float16: torch.finfo(torch.float16).max,
}


@by_name
@pytest.mark.parametrize("dtype", LARGEST, ids=str)
@property_test(60)
@given(data=st.data(), norm_by_std=st.booleans())
def test_finite_rewards_give_finite_advantages(name: str, dtype: torch.dtype, data, norm_by_std: bool):
    largest = LARGEST[dtype]
    extreme = st.sampled_from([largest, -largest, largest / 3, 5e-324, 1.0, 0.0]) | st.floats(-largest, largest)
    batch = data.draw(batches(values=extreme, dtype=dtype))
    found = ESTIMATORS[name](batch.rewards, batch.mask, batch.groups, norm_by_std=norm_by_std)
    assert found.isfinite().all()


@by_name
def test_rewards_that_overflow_when_summed_give_finite_advantages(name: str):
    rewards = torch.full((4, 6), 1.7e308, dtype=torch.float64)
    rewards[1:] *= torch.tensor([[-1.0], [0.5], [-0.5]], dtype=torch.float64)
    for mask in (mask_of(*["111111"] * 4), mask_of(*["110111"] * 4)):
        for norm_by_std in (True, False):
            assert ESTIMATORS[name](rewards, mask, ["a"] * 4, norm_by_std=norm_by_std).isfinite().all()


@by_name
def test_one_group_index_or_another_is_the_same(name: str):
    batch = Batch(mask_of(*["11011"] * 4), ["a"] * 4, torch.tensor([0.1, 1, 0.5, 0, 0.9, 0.4, 0.2, 0.7]))
    uids = ["7c9e6679-7425", "b", "7c9e6679-7425", "b"]
    forms = [uids, tuple(uids), np.array(uids, dtype=object), np.array(uids), torch.tensor([5, -1, 5, -1])]
    forms += [[3, 8, 3, 8], np.array([0.5, 1.5, 0.5, 1.5])]
    results = [ESTIMATORS[name](batch.rewards, batch.mask, form) for form in forms]
    assert all(torch.equal(result, results[0]) for result in results)
    assert not torch.equal(results[0], ESTIMATORS[name](batch.rewards, batch.mask, ["a"] * 4))


@by_name
@pytest.mark.parametrize("shape", [(0, 5), (0, 0), (3, 0)])
def test_a_batch_without_rows_or_tokens(name: str, shape: tuple[int, int]):
    found = ESTIMATORS[name](torch.zeros(shape), torch.zeros(shape, dtype=torch.int64), ["a"] * shape[0])
    assert found.shape == shape


@by_name
def test_the_arguments_are_left_as_they_were(name: str):
    batch = Batch(mask_of("11011", "11110"), ["a", "a"], torch.tensor([0.5, 1, 0.25]))
    rewards, mask, groups = batch.rewards, batch.mask, np.array(["a", "a"], dtype=object)
    copies = rewards.clone(), mask.clone(), groups.copy()
    ESTIMATORS[name](rewards, mask, groups)
    assert torch.equal(rewards, copies[0]) and torch.equal(mask, copies[1]) and (groups == copies[2]).all()


@by_name
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"token_rewards": torch.zeros(4)}, r"token_rewards must be \[rows, length\]"),
        ({"token_rewards": torch.zeros(2, 4, 1)}, r"token_rewards must be \[rows, length\]"),
        ({"token_rewards": torch.zeros(2, 4, dtype=torch.int64)}, "token_rewards must be floating"),
        ({"mask": torch.ones(2, 5)}, "mask has shape"),
        ({"mask": torch.ones(4)}, "mask has shape"),
        ({"groups": ["a"]}, "groups must hold one value for each of 2 rows"),
        ({"groups": ["a", "b", "c"]}, "groups must hold one value for each of 2 rows"),
        ({"groups": torch.zeros(2, 1)}, "groups must hold one value for each of 2 rows"),
        ({"groups": []}, "groups must hold one value for each of 2 rows"),
        ({"token_rewards": torch.tensor([[0, 0, 0, math.nan], [0, 0, 0, 0]])}, "token_rewards must be finite"),
        ({"token_rewards": torch.tensor([[0, 0, 0, math.inf], [0, 0, 0, 0]])}, "token_rewards must be finite"),
        ({"token_rewards": torch.tensor([[0, 0, -math.inf, math.inf], [0, 0, 0, 0]])}, "token_rewards must be finite"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(name: str, arguments: dict, message: str):
    valid = {"token_rewards": torch.zeros(2, 4), "mask": torch.ones(2, 4), "groups": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        ESTIMATORS[name](**(valid | arguments))


@property_test()
@given(batch=batches())
def test_segment_rewards_are_sums_over_the_segments(batch: Batch):
    rollouts = [Rollout(*row) for row in zip(batch.rewards.tolist(), batch.mask.tolist(), strict=True)]
    for segment, found in zip(("tool", "summary"), advantage.segment_rewards(batch.rewards, batch.mask), strict=True):
        assert found.graded.tolist() == [rollout.graded[segment] for rollout in rollouts]
        assert found.reward.dtype == torch.float64
        assert found.reward.tolist() == pytest.approx([rollout.rewards[segment] for rollout in rollouts])
