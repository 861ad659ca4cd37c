"""What a judge is, and the five grades it gives. METHOD 3."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

GRADES = ("very poor", "poor", "acceptable", "good", "excellent")


@dataclass(frozen=True)
class Grade:
    """A verdict: `score` in [0, 1] (beyond it only with `noise_std`), or None and the `failure` that prevented it."""

    score: float | None
    failure: str | None = None


class Judge(Protocol):
    """Grades replies. A reply that cannot be graded is a `Grade` of its own kind, never a score.

    Only what must stop the run is raised: `CacheMiss`, when a replay-only run lacks a verdict.
    """

    async def grade(self, question: str, tool_responses: Sequence[str], reply: str) -> Grade:
        """Grade `reply` as the answer to `question`, given the tools' responses in order."""
        ...

    def metrics(self) -> dict[str, float]:
        """Figures since the start, a fixed set of keys."""
        ...

    async def close(self) -> None:
        """Give back connections and files."""
        ...


def score_of(grade: str) -> float:
    """The score of a grade's name: (rank - 1) / 4. Raises `ValueError` for any other text."""
    return GRADES.index(grade) / (len(GRADES) - 1)
