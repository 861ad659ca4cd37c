"""Runs that differ only in their seed as one line: the mean of a metric and its range over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recipe_slca.report.run_logs import Run


@dataclass
class Curve:
    """`mean`, `low` and `high` (lowest and highest seed) at `steps`, all of one length, which may be 0."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass
class Line:
    """The seeds of one line of the curves."""

    name: str
    runs: list[Run]

    def curve(self, metric: str, smooth: int = 1) -> Curve:
        """The metric at the steps that every seed which logs it has: a mean over fewer seeds would jump where
        one of them ends.

        smooth: each seed's value is the mean of its last `smooth` logged values.
        """
        seeds = [run.values[metric] for run in self.runs if run.values.get(metric)]
        if not seeds:
            return Curve(*(np.empty(0) for _ in range(4)))
        smoothed = [_smooth(seed, smooth) for seed in seeds]
        steps = sorted(set.intersection(*(set(seed) for seed in smoothed)))
        values = np.array([[seed[step] for step in steps] for seed in smoothed])
        return Curve(np.array(steps), values.mean(axis=0), values.min(axis=0), values.max(axis=0))

    def notes(self) -> list[str]:
        """What a reader must know: what a log lacks, and a seed that ended before the others."""
        notes = [f"{run.name}: {note}" for run in self.runs for note in run.notes]
        last_steps = [run.last_step for run in self.runs]
        first_to_end = min(self.runs, key=lambda run: run.last_step)
        if first_to_end.last_step < max(last_steps):
            notes.append(
                f"{self.name}: the mean ends at step {first_to_end.last_step} of {max(last_steps)}, "
                f"because {first_to_end.name} ends there"
            )
        return notes


def to_lines(runs: Sequence[Run]) -> list[Line]:
    """Lines in the order in which their first run is given."""
    lines: dict[str, Line] = {}
    for run in runs:
        lines.setdefault(run.line, Line(run.line, [])).runs.append(run)
    return list(lines.values())


def _smooth(values: dict[int, float], window: int) -> dict[int, float]:
    steps = sorted(values)
    return {
        step: float(np.mean([values[earlier] for earlier in steps[max(0, position + 1 - window) : position + 1]]))
        for position, step in enumerate(steps)
    }
