"""Bootstrap confidence intervals of means over tasks, with SciPy."""

from collections.abc import Sequence
from dataclasses import dataclass

SEED = 0
RESAMPLES = 9999
CONFIDENCE = 0.95
_BATCH = 256
"""Resamples computed at once: bounds the memory for many tasks."""


@dataclass(frozen=True)
class Interval:
    """A mean with its bootstrap interval; `low` and `high` are None for fewer than two values."""

    mean: float
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, float | None]:
        return {"mean": self.mean, "low": self.low, "high": self.high}


def mean_interval(values: Sequence[float], seed: int = SEED) -> Interval:
    """The mean of one value a task and its percentile bootstrap interval (tasks are what is resampled).

    The same values and seed give the same interval. Raises `ValueError` without values.
    """
    if not values:
        raise ValueError("no values to take the mean of")
    mean = sum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    import numpy as np
    from scipy.stats import bootstrap

    result = bootstrap(
        (np.asarray(values, dtype=float),),
        np.mean,
        n_resamples=RESAMPLES,
        batch=_BATCH,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean, float(result.low), float(result.high))
