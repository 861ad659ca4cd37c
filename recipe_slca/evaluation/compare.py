"""Two evaluations side by side: the paired difference by task, with its interval.

    python -m recipe_slca.evaluation.compare outputs/eval-slca outputs/eval-grpo
    python -m recipe_slca.evaluation.compare outputs/eval-slca-seed{1,2,3} --against outputs/eval-grpo-seed{1,2,3}

Each side is one or more runs (folders with a results.json, or such files); a task's value is its mean over the
runs of a side. Only tasks that both sides measured are compared; the others are counted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe_slca.evaluation.intervals import Interval, mean_interval
from recipe_slca.evaluation.results import ALL, FORMAT, METRICS, ResultsError, show


@dataclass(frozen=True)
class Difference:
    """One metric over the tasks of one kind: both means, and the mean of the differences first - second."""

    kind: str
    tasks: int
    metric: str
    first: float
    second: float
    difference: Interval


@dataclass(frozen=True)
class Side:
    """The runs of one side, and each task's kind and mean values."""

    name: str
    kinds: dict[str, str]
    values: dict[str, dict[str, float]]


def read_side(paths: Sequence[Path]) -> Side:
    """Read the runs of one side; a task must be in all of them to count.

    Raises `ResultsError` for a missing or foreign file.
    """
    runs = [_read(path) for path in paths]
    common = set.intersection(*({row["task"] for row in run["per_task"]} for run in runs))
    by_run = [{row["task"]: row for row in run["per_task"]} for run in runs]
    values = {
        task: {metric: sum(rows[task][metric] for rows in by_run) / len(runs) for metric in METRICS}
        for task in sorted(common)
    }
    kinds = {task: by_run[0][task]["kind"] for task in values}
    return Side(" + ".join(dict.fromkeys(run["run"] for run in runs)), kinds, values)


def compare(first: Side, second: Side) -> list[Difference]:
    """Differences for all tasks, then for each kind. Raises `ResultsError` when no task is common."""
    common = [task for task in first.values if task in second.values]
    if not common:
        raise ResultsError(f"{first.name} and {second.name} have no task in common: were they run on the same file?")
    kinds = {ALL: common}
    for kind in sorted({first.kinds[task] for task in common}):
        kinds[kind] = [task for task in common if first.kinds[task] == kind]
    return [
        _difference(kind, metric, [(first.values[task][metric], second.values[task][metric]) for task in tasks])
        for kind, tasks in kinds.items()
        for metric in METRICS
    ]


def _difference(kind: str, metric: str, pairs: list[tuple[float, float]]) -> Difference:
    firsts, seconds = zip(*pairs, strict=True)
    return Difference(
        kind,
        len(pairs),
        metric,
        sum(firsts) / len(pairs),
        sum(seconds) / len(pairs),
        mean_interval([one - other for one, other in pairs]),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 when the two cannot be compared."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe_slca.evaluation.compare", description="Compare two evaluations task by task."
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="A B, or the runs of the first side")
    parser.add_argument("--against", type=Path, nargs="+", metavar="RUN", help="the runs of the second side")
    options = parser.parse_args(argv)
    if not options.against and len(options.runs) != 2:
        parser.error("give two runs, or the runs of one side and --against the runs of the other")
    firsts, seconds = (options.runs, options.against) if options.against else (options.runs[:1], options.runs[1:])
    try:
        first, second = read_side(firsts), read_side(seconds)
        differences = compare(first, second)
    except ResultsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    _print_table(first, second, differences)
    unpaired = len(first.values) + len(second.values) - 2 * differences[0].tasks
    if unpaired:
        print(f"note: {unpaired} tasks were measured by one side only and are left out", file=sys.stderr)
    return 0


def _print_table(first: Side, second: Side, differences: list[Difference]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table("Kind of task", "Tasks", "Metric", escape(first.name), escape(second.name), "Difference", "")
    for row in differences:
        low, high = row.difference.low, row.difference.high
        sure = "" if low is None or low <= 0 <= high else "*"
        table.add_row(
            Text(row.kind),
            str(row.tasks),
            METRICS[row.metric],
            f"{row.first:.3f}",
            f"{row.second:.3f}",
            Text(show(row.difference, "+")),
            sure,
            end_section=row.metric == list(METRICS)[-1],
        )
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print("* the interval of the difference does not hold 0", markup=False)


def _read(path: Path) -> dict[str, Any]:
    file = path / "results.json" if path.is_dir() else path
    if not file.is_file():
        raise ResultsError(f"no results in {path}: make them with `python -m recipe_slca.evaluation.results {path}`")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultsError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ResultsError(
            f"{file} is not of the form {FORMAT} (results of BFCL or tau2-Bench cannot be compared here)"
        )
    return content


if __name__ == "__main__":
    sys.exit(main())
