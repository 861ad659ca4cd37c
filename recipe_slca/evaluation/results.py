"""What an evaluation run measured: results.json and a table, by kind of task.

    python -m recipe_slca.evaluation.results outputs/my-eval --tasks data/toucan/eval.parquet --samples 1

Reads the rollout dump of the newest validation in RUN_DIR, checks that it is complete, and takes means over
tasks with bootstrap intervals over tasks. A task is one prompt with its gold calls; its value is the mean over
its rollouts.
"""

import argparse
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipe_slca.evaluation.intervals import CONFIDENCE, RESAMPLES, SEED, Interval, mean_interval

FORMAT = "slca-results/1"
DUMP_FORMAT = "slca-rollouts/1"
FOLDER = "slca_rollouts"
LOG = "log.jsonl"
ALL = "all"
METRICS = {
    "name_f1": "Name F1",
    "arg_match": "ArgMatch",
    "process": "Process",
    "success_0.9": "Success@0.9",
    "tool_turns": "Tool turns",
    "calls": "Calls",
    "redundant_calls": "Redundant calls",
}
"""Metrics of a rollout in the dump, and how a table calls them."""
_FILE = re.compile(r"val_(\d+)\.jsonl")


class ResultsError(ValueError):
    """There is nothing to report, or not all of it; the message says what and where."""


@dataclass
class Task:
    """One task: its kind (`parallel_type`) and its rollouts' metrics."""

    kind: str
    rollouts: list[dict[str, float]] = field(default_factory=list)

    def mean(self, metric: str) -> float:
        return sum(rollout[metric] for rollout in self.rollouts) / len(self.rollouts)


def read_validation(run_dir: Path, step: int | None = None) -> tuple[int, dict[str, Task]]:
    """The tasks of a validation by id, and its step: the newest one when `step` is None.

    Raises `ResultsError` for a folder without one, and for a line that cannot be read.
    """
    folder = run_dir / FOLDER
    files = {int(match[1]): path for path in folder.glob("val_*.jsonl") if (match := _FILE.fullmatch(path.name))}
    if step is None and files:
        step = max(files)
    if step not in files:
        raise ResultsError(
            f"no validation{'' if step is None else f' of step {step}'} in {folder}: the run has not validated, or "
            "slca.dump.every=0"
        )
    tasks: dict[str, Task] = {}
    for place, line in _lines(files[step]):
        try:
            tasks.setdefault(task_id(line), Task(str(line["task"].get("parallel_type") or "unknown"))).rollouts.append(
                {metric: float(line["metrics"][metric]) for metric in METRICS}
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ResultsError(f"{place}: not a rollout of {DUMP_FORMAT}: {type(error).__name__}: {error}") from error
    if not tasks:
        raise ResultsError(f"{files[step]} holds no rollout")
    return step, tasks


def task_id(rollout: dict[str, Any]) -> str:
    """The same for the same prompt and gold calls, in whatever run."""
    text = json.dumps([rollout["prompt"], rollout["gold_calls"]], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_complete(run_dir: Path, step: int, tasks: dict[str, Task], rows: int, samples: int) -> None:
    """Raises `ResultsError` when there are not `samples` rollouts for each of `rows` rows, and says what is known
    of the missing ones."""
    found, expected = sum(len(task.rollouts) for task in tasks.values()), rows * samples
    if found == expected:
        return
    logged = _logged(run_dir, step)
    reasons = []
    if logged.get("slca/val/rollouts", 0) > found:
        scored = logged["slca/val/rollouts"]
        reasons.append(f"{scored:.0f} were scored, but the dump was cut off: raise slca.dump.max_rollouts")
    if logged.get("slca/failed_rollouts"):
        reasons.append(f"{logged['slca/failed_rollouts']:.0f} rollouts failed: see the run's output")
    if found > expected:
        reasons.append("the file of tasks or the number of samples is not that of the run")
    reasons = reasons or ["prompts over data.max_prompt_length are left out with data.filter_overlong_prompts=True"]
    raise ResultsError(
        f"{found} rollouts of step {step} in {run_dir / FOLDER}, expected are {expected} ({rows} rows x {samples}): "
        + "; ".join(reasons)
    )


def summarize(tasks: dict[str, Task]) -> dict[str, Any]:
    """The mean of each metric over all tasks and over each kind, with intervals over tasks."""
    kinds = {ALL: list(tasks.values())}
    for task in sorted(tasks.values(), key=lambda task: task.kind):
        kinds.setdefault(task.kind, []).append(task)
    return {
        kind: {
            "tasks": len(members),
            "rollouts": sum(len(task.rollouts) for task in members),
            "metrics": {metric: mean_interval([task.mean(metric) for task in members]).to_dict() for metric in METRICS},
        }
        for kind, members in kinds.items()
    }


def results(run_dir: Path, step: int, tasks: dict[str, Task]) -> dict[str, Any]:
    """What results.json holds. `tasks` is a list, so that a model card shows the summary alone."""
    return {
        "format": FORMAT,
        "run": run_dir.resolve().name,
        "step": step,
        "interval": f"{CONFIDENCE:.0%} percentile bootstrap over tasks, {RESAMPLES} resamples, seed {SEED}",
        "kinds": summarize(tasks),
        "per_task": [
            {"task": name, "kind": task.kind, "rollouts": len(task.rollouts)}
            | {metric: task.mean(metric) for metric in METRICS}
            for name, task in sorted(tasks.items())
        ],
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write results.json; it appears when it is complete."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def print_table(content: dict[str, Any]) -> None:
    """A row for each kind of task, all of them first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("Kind of task", "Tasks", *METRICS.values(), title=Text(f"{content['run']}, step {content['step']}"))
    for kind, part in content["kinds"].items():
        shown = [show(Interval(**part["metrics"][metric])) for metric in METRICS]
        table.add_row(Text(kind), str(part["tasks"]), *map(Text, shown))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def show(interval: Interval, sign: str = "") -> str:
    """A mean and its interval as text; `sign="+"` shows the sign of the mean."""
    if interval.low is None:
        return f"{interval.mean:{sign}.3f}"
    return f"{interval.mean:{sign}.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 1 when there are no complete results."""
    options = _parser().parse_args(argv)
    try:
        step, tasks = read_validation(options.run_dir, options.step)
        if options.tasks:
            import pyarrow.parquet as pq

            check_complete(options.run_dir, step, tasks, pq.read_metadata(options.tasks).num_rows, options.samples)
        content = results(options.run_dir, step, tasks)
        write(options.run_dir / "results.json", content)
    except (ResultsError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(content)
    print(f"{options.run_dir / 'results.json'}: intervals are {content['interval']}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipe_slca.evaluation.results", description="Report what an evaluation run measured."
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--step", type=int, metavar="N", help="the validation of this step (default: the newest)")
    parser.add_argument("--tasks", type=Path, metavar="FILE.parquet", help="fail unless every row was measured")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="rollouts of each row (default: 1)")
    return parser


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}, line {number}"
            try:
                rollout = json.loads(line)
            except ValueError as error:
                raise ResultsError(f"{place}: not JSON: {error}") from error
            if not isinstance(rollout, dict) or rollout.get("format") != DUMP_FORMAT:
                raise ResultsError(f"{place}: not a rollout of {DUMP_FORMAT}")
            yield place, rollout


def _logged(run_dir: Path, step: int) -> dict[str, float]:
    """What the run's own log says of a step; empty without a log."""
    path = run_dir / LOG
    values: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was stopped
            continue
        if entry["step"] == step:
            values |= entry["data"]
    return values


if __name__ == "__main__":
    sys.exit(main())
