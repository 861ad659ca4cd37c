"""Read the training logs of runs: verl's file logger (JSON lines) or TensorBoard event files.

A run's line in the curves is its name without a trailing seed: `slca_seed1`, `slca-seed-2` and `slca/seed3`
are seeds of the line `slca`.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recipe_slca.report.errors import ReportError

EVENT_FILES = "*tfevents*"
_SEED = re.compile(r"(?P<line>.*?[^-_./])[-_./]?seed[-_=]?(?P<seed>\d+)", re.IGNORECASE)


@dataclass
class Run:
    """One run's log. `values` maps a metric to its values by step; `notes` say what could not be read."""

    path: Path
    name_parts: tuple[str, ...]
    name: str = ""
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        """The name without a trailing seed."""
        match = _SEED.fullmatch(self.name)
        return match["line"] if match else self.name

    @property
    def seed(self) -> int | None:
        match = _SEED.fullmatch(self.name)
        return int(match["seed"]) if match else None

    @property
    def last_step(self) -> int:
        return max(step for values in self.values.values() for step in values)


def read(paths: Sequence[Path]) -> list[Run]:
    """Read runs: log files, or folders that hold a log.

    A folder with one log is named after the folder; with several, each is a run named after its file, as is
    a log given itself. Names that meet get parts of their path in front, until they differ.

    Raises:
        ReportError: a path without a log, a log without a step, or the same log given twice.
    """
    runs = [run for path in paths for run in _find_runs(path)]
    _name(runs)
    for run in runs:
        if run.path.suffix == ".jsonl":
            _read_json_lines(run)
        else:
            _read_event_files(run)
        if not run.values:
            reasons = "; ".join(run.notes) or "it is empty: the run has not finished its first step yet"
            raise ReportError(f"no step in the log {run.path}: {reasons}")
    return runs


def _find_runs(path: Path) -> list[Run]:
    folder_parts = path.resolve().parts
    if path.is_file() and path.suffix == ".jsonl":
        return [Run(path, (*folder_parts[:-1], path.stem))]
    if not path.is_dir():
        raise ReportError(f"{path} is no folder and no .jsonl file; give a run's folder or its log")
    logs = sorted(path.glob("*.jsonl"))
    if len(logs) == 1:
        return [Run(logs[0], folder_parts)]
    if logs:
        return [Run(log, (*folder_parts, log.stem)) for log in logs]
    if any(path.rglob(EVENT_FILES)):
        return [Run(path, folder_parts)]
    raise ReportError(
        f"{path} holds no *.jsonl (trainer.logger with 'file', VERL_FILE_LOGGER_PATH) and no TensorBoard events"
    )


def _name(runs: list[Run]) -> None:
    for size in range(1, max(len(run.name_parts) for run in runs) + 1):
        for run in runs:
            run.name = "/".join(run.name_parts[-size:])
        if len({(run.line, run.seed) for run in runs}) == len(runs) and not any(_is_bare_seed(run) for run in runs):
            return
    raise ReportError("the same run is given twice: " + ", ".join(sorted(str(run.path) for run in runs)))


def _is_bare_seed(run: Run) -> bool:
    return re.fullmatch(r"seed[-_=]?\d+", run.name, re.IGNORECASE) is not None


def _read_json_lines(run: Run) -> None:
    corrupt: list[int] = []
    for number, line, is_complete in _lines(run.path):
        try:
            entry = json.loads(line)
            step = int(entry["step"])
            data = {name: float(value) for name, value in entry["data"].items() if isinstance(value, (int, float))}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if is_complete:
                corrupt.append(number)
            else:
                run.notes.append("the last line is half written: the run is still going on, or was stopped there")
            continue
        _add(run, step, data)
    if corrupt:
        count = f"{len(corrupt)} corrupt {'line' if len(corrupt) == 1 else 'lines'}"
        run.notes.append(f"{count} skipped (first: line {corrupt[0]})")


def _lines(path: Path) -> Iterator[tuple[int, bytes, bool]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line, line.endswith(b"\n")


def _add(run: Run, step: int, data: dict[str, float]) -> None:
    for name, value in data.items():
        if math.isfinite(value):
            run.values.setdefault(name, {})[step] = value


def _read_event_files(run: Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folders = sorted({file.parent for file in run.path.rglob(EVENT_FILES)})
    if len(folders) > 1:
        raise ReportError(f"{run.path} holds events of several runs; give one of {', '.join(map(str, folders))}")
    events = EventAccumulator(str(folders[0]), size_guidance={"scalars": 0})
    events.Reload()
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            _add(run, event.step, {name: event.value})
