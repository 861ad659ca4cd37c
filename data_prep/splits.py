"""Which row goes to which split: by a hash of its identity and the seed, never by its place in a file.

Evaluation is taken out first, and all rows of one identity share a split, so that no turn of an evaluated
dialogue reaches training. Then SFT, then RL.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SPLITS = ("eval", "sft", "rl")
NONE, EVAL, SFT, RL = -1, 0, 1, 2

KEPT = np.dtype(
    [
        ("group", "u8"),  # hash of identity and seed: the order in which rows are drawn
        ("digest", "u8", (2,)),  # of the content, to find duplicates
        ("samples", "i4"),  # RL or evaluation rows that it gives
        ("decomposed", "?"),  # its samples carry history
        ("sft", "?"),  # it can be an SFT row
        ("evaluation_only", "?"),
    ]
)


class SplitError(ValueError):
    """Sizes that cannot be had; the message says how many rows of each kind there are and what would fit."""


@dataclass(frozen=True)
class Size:
    """How much a split takes: `rows`, or a `share` of what is left when its turn comes.

    decomposed: for evaluation, so many further rows from longer dialogues; `rows` then counts single ones.
    """

    rows: int | None = None
    share: float | None = None
    decomposed: int | None = None


PRESETS = {"paper": {"eval": Size(3000, decomposed=1000), "sft": Size(42423), "rl": Size(31818)}}


def parse_sizes(text: str) -> dict[str, Size]:
    """Read `eval=300+100,sft=60%,rl=rest`. Raises `ValueError` saying what is allowed."""
    sizes = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in SPLITS or name in sizes:
            raise ValueError(f"{part!r}: name each of eval, sft, rl at most once, as in eval=300+100,sft=60%,rl=rest")
        sizes[name] = _parse_size(name, value)
    return {name: sizes[name] for name in SPLITS if name in sizes}


def _parse_size(name: str, value: str) -> Size:
    try:
        if value == "rest":
            return Size(share=1.0)
        if value.endswith("%"):
            share = float(value[:-1]) / 100
            if 0 < share <= 1:
                return Size(share=share)
        elif "+" in value and name == "eval":
            single, decomposed = map(int, value.split("+"))
            if single >= 0 and decomposed >= 0:
                return Size(single, decomposed=decomposed)
        elif int(value) > 0:
            return Size(int(value))
    except ValueError:
        pass
    raise ValueError(
        f"{name}={value}: use a number of rows, a share such as 60%, or rest (eval also SINGLE+DECOMPOSED)"
    )


def group_hash(identity: str, seed: int) -> int:
    """The place of an identity in the order of drawing, 64 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}\n{identity}".encode()).digest()[:8], "big")


def content_digest(parts: list[str]) -> tuple[int, int]:
    """A digest of texts without NUL characters, 128 bits."""
    raw = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:16], "big")


def find_duplicates(kept: np.ndarray) -> np.ndarray:
    """Bool, one a row: another row with the same content comes first in the order of drawing."""
    order = np.lexsort((kept["group"], kept["digest"][:, 1], kept["digest"][:, 0]))
    digests = kept["digest"][order]
    repeated = np.zeros(len(kept), dtype=bool)
    repeated[order[1:]] = (digests[1:] == digests[:-1]).all(axis=1)
    return repeated


def assign(kept: np.ndarray, sizes: Mapping[str, Size]) -> tuple[np.ndarray, np.ndarray]:
    """Assign rows (of dtype KEPT, duplicates taken out) to splits.

    Returns the split of each row (EVAL, SFT, RL or NONE) and how many of its samples it gives there. Raises
    `SplitError` when a size in rows cannot be had.
    """
    split, taken, got = _draw_all(kept, sizes)
    wanted = _rows_wanted(sizes)
    if any(got[name] < rows for name, rows in wanted.items()):
        raise SplitError(_explain(kept, sizes, wanted, got))
    return split, taken


def _draw_all(kept: np.ndarray, sizes: Mapping[str, Size]) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """As `assign`, with as many rows as there are, and how many each split got."""
    split = np.full(len(kept), NONE, dtype=np.int8)
    taken = np.zeros(len(kept), dtype=np.int32)
    order = np.lexsort((kept["digest"][:, 1], kept["digest"][:, 0], kept["group"]))
    got: dict[str, int] = {}
    if "eval" in sizes:
        got["eval"] = _draw_eval(kept, order, sizes["eval"], split, taken)
    # A dialogue that is evaluated takes every row of its identity out of training.
    evaluated = np.isin(kept["group"], kept["group"][split == EVAL])
    free = ~evaluated & ~kept["evaluation_only"]
    if "sft" in sizes:
        usable = free & kept["sft"]
        got["sft"] = _draw(np.ones(len(kept), dtype=np.int32), usable, order, sizes["sft"], SFT, split, taken)
        free &= ~np.isin(kept["group"], kept["group"][split == SFT])
    if "rl" in sizes:
        got["rl"] = _draw(kept["samples"], free, order, sizes["rl"], RL, split, taken)
    return split, taken, got


def _draw_eval(kept: np.ndarray, order: np.ndarray, size: Size, split: np.ndarray, taken: np.ndarray) -> int:
    everything = np.ones(len(kept), dtype=bool)
    if size.decomposed is None:
        return _draw(kept["samples"], everything, order, size, EVAL, split, taken)
    single = _draw(kept["samples"], ~kept["decomposed"], order, Size(size.rows), EVAL, split, taken)
    return single + _draw(kept["samples"], kept["decomposed"], order, Size(size.decomposed), EVAL, split, taken)


def _draw(
    weights: np.ndarray,
    usable: np.ndarray,
    order: np.ndarray,
    size: Size,
    code: int,
    split: np.ndarray,
    taken: np.ndarray,
) -> int:
    """Take rows in order until `size` is reached; the last one may give only some of its samples."""
    drawn = order[(usable & (weights > 0) & (split == NONE))[order]]
    totals = np.cumsum(weights[drawn], dtype=np.int64)
    available = int(totals[-1]) if len(totals) else 0
    wanted = size.rows if size.rows is not None else round(size.share * available)
    wanted = min(wanted, available)
    count = int(np.searchsorted(totals, wanted)) + 1 if wanted else 0
    chosen = drawn[:count]
    split[chosen] = code
    taken[chosen] = weights[chosen]
    if count:
        taken[chosen[-1]] -= totals[count - 1] - wanted
    return wanted


def _rows_wanted(sizes: Mapping[str, Size]) -> dict[str, int]:
    return {name: (size.rows or 0) + (size.decomposed or 0) for name, size in sizes.items() if size.rows is not None}


def _explain(kept: np.ndarray, sizes: Mapping[str, Size], wanted: Mapping[str, int], got: Mapping[str, int]) -> str:
    samples, decomposed = kept["samples"], kept["decomposed"]
    return (
        f"too few rows: wanted {_say(wanted)}, found {_say({name: got[name] for name in wanted})}. There are "
        f"{int(samples[~decomposed].sum())} samples of one-turn dialogues, {int(samples[decomposed].sum())} decomposed "
        f"samples, and {int(kept['sft'].sum())} dialogues fit for SFT. {_suggest(kept, sizes)}"
    )


def _suggest(kept: np.ndarray, sizes: Mapping[str, Size]) -> str:
    """Sizes in the wanted proportion that can be had, found by halving the scale."""
    low, high = 0.0, 1.0
    for _ in range(20):
        scale = (low + high) / 2
        smaller = _scaled(sizes, scale)
        got = _draw_all(kept, smaller)[2]
        if all(got[name] >= rows for name, rows in _rows_wanted(smaller).items()):
            low = scale
        else:
            high = scale
    fitting = _scaled(sizes, low)
    if not all(_rows_wanted(fitting).values()):
        return "No sizes in this proportion fit"
    parts = []
    for name, size in fitting.items():
        extra = f"+{size.decomposed}" if size.decomposed is not None else ""
        parts.append(f"{name}={size.rows}{extra}" if size.rows is not None else f"{name}={size.share:.0%}")
    return f"In this proportion these fit: --splits {','.join(parts)}"


def _scaled(sizes: Mapping[str, Size], scale: float) -> dict[str, Size]:
    return {
        name: Size(
            None if size.rows is None else int(size.rows * scale),
            size.share,
            None if size.decomposed is None else int(size.decomposed * scale),
        )
        for name, size in sizes.items()
    }


def _say(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={rows}" for name, rows in counts.items())
