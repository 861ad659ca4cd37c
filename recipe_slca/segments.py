"""What a segment is: runs of a response mask, and the two segments made of them.

The policy wrote the tokens where a response mask is 1; observations and padding are 0. A run is a maximal
stretch of ones. The summary segment is the last run, the tool segment is all earlier runs together:

    response   call ........ observation ... call ... observation ... reply ..... padding
    mask       1 1 1 1 1 1 1 0 0 0 0 0 0 0 0 1 1 1 1 1 0 0 0 0 0 0 0 0 1 1 1 1 1 1 0 0 0 0
    segment    tool .......                  tool ...                  summary ...

A response with one run made no tool call: all of it is summary, and its tool segment is absent. This is the
one place that knows this; writing segment rewards and reading them back both come here. (METHOD 1.)
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Runs:
    """All runs of a batch of masks, ordered by row and then by position.

    row, start, end: [runs] int64; the row of each run, its first position, and the position after its last.
    is_summary: [runs] bool, whether the run is the last of its row.
    ends_tool_segment: [runs] bool, whether the run is the last of its row's tool segment.
    """

    row: Tensor
    start: Tensor
    end: Tensor
    is_summary: Tensor
    ends_tool_segment: Tensor


def find_runs(mask: Tensor) -> Runs:
    """Find the runs of `mask` [rows, length], in which ones (or True) mark the policy's tokens.

    Raises `ValueError` when the mask is not two-dimensional.
    """
    if mask.dim() != 2:
        raise ValueError(f"mask must be [rows, length], got shape {tuple(mask.shape)}")
    rows, length = mask.shape
    flips = torch.zeros((rows, length + 1), dtype=torch.bool, device=mask.device)
    flips[:, :-1] = mask
    flips[:, 1:] ^= mask.bool()
    row, position = flips.nonzero(as_tuple=True)
    row, start, end = row[::2], position[::2], position[1::2]
    is_summary = torch.ones_like(row, dtype=torch.bool)
    is_summary[:-1] = row[1:] != row[:-1]
    ends_tool_segment = torch.zeros_like(is_summary)
    ends_tool_segment[:-1] = is_summary[1:] & ~is_summary[:-1]
    return Runs(row, start, end, is_summary, ends_tool_segment)


def spread(per_run: Tensor, runs: Runs, mask: Tensor) -> Tensor:
    """Give every token of a run the run's value: [runs] to the shape of `mask`, 0 outside the runs."""
    # End to end, the rows are gaps and runs in turn: their values, each repeated by its length, are the tokens.
    length = mask.shape[1]
    bounds = torch.stack([runs.row * length + runs.start, runs.row * length + runs.end], dim=1).flatten()
    lengths = torch.diff(bounds, prepend=bounds.new_zeros(1), append=bounds.new_tensor([mask.numel()]))
    values = per_run.new_zeros(len(lengths))
    values[1::2] = per_run
    return _repeat(values, lengths).view(mask.shape)


def _repeat(values: Tensor, times: Tensor) -> Tensor:
    if values.device.type != "cpu" or values.requires_grad:
        return values.repeat_interleave(times)
    # On a CPU torch writes down an index of all tokens first, which takes several times as long as NumPy's repeat.
    if values.dtype == torch.bfloat16:  # unknown to NumPy
        return _repeat(values.view(torch.int16), times).view(torch.bfloat16)
    return torch.from_numpy(np.repeat(values.numpy(), times.numpy()))


def split(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Split the learnable tokens of `mask` [rows, length] into (tool_mask, summary_mask), bool, same shape.

    The two never overlap and together are exactly `mask`. Raises `ValueError` as `find_runs` does.
    """
    runs = find_runs(mask)
    summary_mask = spread(runs.is_summary, runs, mask)
    return mask.bool() & ~summary_mask, summary_mask
