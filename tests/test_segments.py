"""Runs and segments of a response mask, against a loop over tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recipe_slca import segments

MASK_DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64, torch.bfloat16)


@st.composite
def masks(draw: st.DrawFn) -> Tensor:
    """Masks of 0 to 5 rows and 0 to 12 tokens, in any dtype that a trainer may use."""
    rows, length = draw(st.integers(0, 5)), draw(st.integers(0, 12))
    bits = draw(st.lists(st.booleans(), min_size=rows * length, max_size=rows * length))
    return torch.tensor(bits, dtype=draw(st.sampled_from(MASK_DTYPES))).view(rows, length)


def runs_of_row(row: list[int]) -> list[tuple[int, int]]:
    found, start = [], None
    for position, bit in enumerate([*row, 0]):
        if bit and start is None:
            start = position
        elif not bit and start is not None:
            found.append((start, position))
            start = None
    return found


@settings(deadline=None)
@given(masks())
def test_runs_are_those_of_a_loop_over_tokens(mask: Tensor):
    expected = []
    for row, bits in enumerate(mask.tolist()):
        found = runs_of_row(bits)
        for number, (start, end) in enumerate(found):
            expected.append((row, start, end, number == len(found) - 1, number == len(found) - 2))
    runs = segments.find_runs(mask)
    columns = (runs.row, runs.start, runs.end, runs.is_summary, runs.ends_tool_segment)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert [column.dtype for column in columns] == [torch.int64] * 3 + [torch.bool] * 2


@settings(deadline=None)
@given(masks())
def test_the_segments_partition_the_mask(mask: Tensor):
    tool, summary = segments.split(mask)
    assert tool.dtype == summary.dtype == torch.bool
    assert tool.shape == summary.shape == mask.shape
    assert not (tool & summary).any()
    assert torch.equal(tool | summary, mask.bool())


@settings(deadline=None)
@given(masks())
def test_the_summary_segment_is_the_last_run(mask: Tensor):
    _, summary = segments.split(mask)
    for bits, summary_bits in zip(mask.tolist(), summary.tolist(), strict=True):
        start, end = (runs_of_row(bits) or [(0, 0)])[-1]
        assert summary_bits == [start <= position < end for position in range(len(bits))]


@settings(deadline=None)
@given(masks(), st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]))
def test_spread_gives_each_token_the_value_of_its_run(mask: Tensor, dtype: torch.dtype):
    runs = segments.find_runs(mask)
    values = torch.arange(1, len(runs.row) + 1).to(dtype)
    expected = torch.zeros(mask.shape, dtype=dtype)
    for value, row, start, end in zip(values, runs.row, runs.start, runs.end, strict=True):
        expected[row, start:end] = value
    spread = segments.spread(values, runs, mask)
    assert spread.dtype == dtype
    assert torch.equal(spread, expected)


@settings(deadline=None)
@given(masks())
def test_spread_passes_gradients_on_and_gives_the_same_values_then(mask: Tensor):
    runs = segments.find_runs(mask)
    values = torch.arange(1.0, len(runs.row) + 1)
    tracked = values.clone().requires_grad_()
    spread = segments.spread(tracked, runs, mask)
    assert torch.equal(spread, segments.spread(values, runs, mask))
    spread.sum().backward()
    assert torch.equal(tracked.grad, (runs.end - runs.start).float())


@pytest.mark.parametrize(
    ("mask", "tool", "summary"),
    [
        ([1, 1, 0, 1, 0, 0, 1, 1, 0], [1, 1, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1, 0]),
        ([1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]),
        ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]),
        ([1], [0], [1]),
        ([0], [0], [0]),
        ([1, 0, 1], [1, 0, 0], [0, 0, 1]),
        ([0, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0]),
        ([], [], []),
    ],
)
@pytest.mark.parametrize("dtype", MASK_DTYPES, ids=str)
def test_segments_of_known_masks(mask: list[int], tool: list[int], summary: list[int], dtype: torch.dtype):
    found = segments.split(torch.tensor([mask], dtype=dtype))
    assert [segment.int().tolist() for segment in found] == [[tool], [summary]]


def test_runs_of_neighbouring_rows_stay_apart():
    """A run that ends its row touches one that begins the next: they are two runs all the same."""
    runs = segments.find_runs(torch.tensor([[0, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 1]]))
    assert list(zip(runs.row.tolist(), runs.start.tolist(), runs.end.tolist(), strict=True)) == [
        (0, 1, 3),
        (1, 0, 2),
        (2, 0, 3),
        (3, 0, 1),
        (3, 2, 3),
    ]


@pytest.mark.parametrize("function", [segments.find_runs, segments.split])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)])
def test_other_than_two_dimensions_are_refused(function, shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"mask must be \[rows, length\]"):
        function(torch.ones(shape))


def test_the_mask_is_left_as_it_was():
    mask = torch.tensor([[True, False, True, True]])
    segments.split(mask)
    assert mask.tolist() == [[True, False, True, True]]
