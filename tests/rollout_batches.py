"""Batches of rewards, masks and groups for the tests of the estimators."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from recipe_slca import segments
from recipe_slca.advantage import UNGRADED

ROWS = st.integers(0, 8)
EVERYDAY = st.integers(-20, 20).map(lambda quarters: quarters / 4)


@dataclass(frozen=True)
class Batch:
    """Arguments of an estimator, with one reward per run of the mask in `run_rewards`."""

    mask: Tensor
    groups: list[str]
    run_rewards: Tensor

    @property
    def rewards(self) -> Tensor:
        """Each run's reward on its last token."""
        runs = segments.find_runs(self.mask)
        rewards = torch.zeros(self.mask.shape, dtype=self.run_rewards.dtype)
        rewards[runs.row, runs.end - 1] = self.run_rewards
        return rewards

    def with_segment(self, segment: str, values: Tensor) -> "Batch":
        """The same batch with `values` as the run rewards of one segment ("tool" or "summary")."""
        is_summary = segments.find_runs(self.mask).is_summary
        member = is_summary if segment == "summary" else ~is_summary
        return replace(self, run_rewards=values.to(self.run_rewards.dtype).where(member, self.run_rewards))


def mask_of(*rows: str) -> Tensor:
    """A mask written as one string of 0 and 1 per row."""
    return torch.tensor([[int(bit) for bit in row] for row in rows])


@st.composite
def batches(
    draw: st.DrawFn,
    values: st.SearchStrategy[float] = EVERYDAY,
    dtype: torch.dtype = torch.float64,
    ungraded: bool = True,
    rows: st.SearchStrategy[int] = ROWS,
) -> Batch:
    """Batches of up to 8 rows of up to 10 tokens in up to 3 groups; every segment may be absent or ungraded."""
    count = draw(rows)
    length = draw(st.integers(1, 10))
    bits = draw(st.lists(st.booleans(), min_size=count * length, max_size=count * length))
    mask = torch.tensor(bits, dtype=torch.bool).view(count, length)
    groups = draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count))
    number = len(segments.find_runs(mask).row)
    value = values | st.just(UNGRADED) if ungraded else values
    run_rewards = torch.tensor(draw(st.lists(value, min_size=number, max_size=number)), dtype=dtype)
    return Batch(mask, groups, run_rewards)
