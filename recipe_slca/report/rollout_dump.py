"""Read a run's rollout dump: RUN_DIR/slca_rollouts/<step>.jsonl and val_<step>.jsonl, one rollout a line.

A line that cannot be shown never stops the reading: it is counted by reason and by where it first stood.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipe_slca.report import rollout_view
from recipe_slca.report.errors import ReportError

FORMAT = "slca-rollouts/1"
FOLDER = "slca_rollouts"
_FILE_NAME = re.compile(r"(?:val_)?(\d+)\.jsonl")


@dataclass
class Group:
    """The rollouts of one prompt in one step.

    `task` is `rollout_view.view_task` of the first rollout read, `rollouts` are `rollout_view.view_rollout`.
    """

    step: int
    validate: bool
    name: str
    task: dict[str, Any]
    rollouts: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Skipped:
    """How many lines were left out for one reason, and where the first of them stood."""

    count: int
    first: str


@dataclass
class Dump:
    """What was read. `skipped` maps a reason to what it cost; the `left_out` parts are whole data beyond
    `max_rollouts`: groups of a file that was read, and files that were not."""

    run_dir: Path
    groups: list[Group] = field(default_factory=list)
    skipped: dict[str, Skipped] = field(default_factory=dict)
    left_out_groups: int = 0
    left_out_files: list[str] = field(default_factory=list)

    @property
    def rollout_count(self) -> int:
        return sum(len(group.rollouts) for group in self.groups)

    def skip(self, reason: str, place: str) -> None:
        self.skipped.setdefault(reason, Skipped(0, place)).count += 1

    def notes(self) -> list[str]:
        """What the reader of the page must know about data that is not on it."""
        notes = [
            f"{skipped.count} {'line' if skipped.count == 1 else 'lines'} skipped: {reason} (first: {skipped.first})"
            for reason, skipped in self.skipped.items()
        ]
        if self.left_out_groups:
            notes.append(f"{self.left_out_groups} more groups of the steps shown are left out (see --max-rollouts)")
        if self.left_out_files:
            shown = ", ".join(self.left_out_files[:6]) + (", ..." if len(self.left_out_files) > 6 else "")
            notes.append(f"{len(self.left_out_files)} earlier files are left out: {shown} (see --steps)")
        return notes


class _Unusable(ValueError):
    """A line that cannot be shown; the message is the reason it is counted under."""


def read(run_dir: Path, steps: set[int] | None = None, max_rollouts: int = 2000) -> Dump:
    """Read the groups of a run, ordered by step, the latest steps first to be kept.

    Args:
        steps: only these; None for all.
        max_rollouts: once this many are kept, further groups are counted and left out. A group is kept whole.

    Raises:
        ReportError: there is no rollout to show; the message says why.
    """
    dump = Dump(run_dir)
    for file in _find_files(run_dir, steps):
        if dump.rollout_count >= max_rollouts:
            dump.left_out_files.append(file.name)
        else:
            _read_file(file, dump, max_rollouts)
    if not dump.groups:
        reasons = "; ".join(dump.notes()) or "the files are empty: the run has not written a rollout yet"
        raise ReportError(f"no rollout to show in {run_dir / FOLDER}: {reasons}")
    dump.groups.sort(key=lambda group: (group.step, group.validate))
    return dump


def _find_files(run_dir: Path, steps: set[int] | None) -> list[Path]:
    folder = run_dir / FOLDER
    if not folder.is_dir():
        raise ReportError(
            f"{run_dir} has no folder {FOLDER}: is it a run's folder, has the run reached its first dumped step, "
            "and is slca.dump.every above 0?"
        )
    found = [(int(match[1]), file) for file in folder.iterdir() if (match := _FILE_NAME.fullmatch(file.name))]
    if not found:
        raise ReportError(f"{folder} holds no <step>.jsonl: the run has not reached its first dumped step yet")
    chosen = [entry for entry in found if steps is None or entry[0] in steps]
    if not chosen:
        known = ", ".join(str(step) for step in sorted({step for step, _ in found}))
        raise ReportError(f"{folder} holds none of the steps {sorted(steps or ())}; it holds {known}")
    return [file for _, file in sorted(chosen, key=lambda entry: (-entry[0], entry[1].name))]


def _read_file(file: Path, dump: Dump, max_rollouts: int) -> None:
    room = max_rollouts - dump.rollout_count
    kept: dict[tuple[int, bool, str], Group] = {}
    left_out: set[tuple[int, bool, str]] = set()
    kept_rollouts = 0
    for place, line, is_complete in _lines(file):
        try:
            key, task, rollout = _read_line(line, place, is_complete)
        except _Unusable as error:
            dump.skip(str(error), place)
            continue
        if key not in kept and (key in left_out or kept_rollouts >= room):
            left_out.add(key)
            continue
        kept.setdefault(key, Group(*key, task)).rollouts.append(rollout)
        kept_rollouts += 1
    dump.groups.extend(kept.values())
    dump.left_out_groups += len(left_out)


def _lines(file: Path) -> Iterator[tuple[str, bytes, bool]]:
    """Place, content, and whether the line is ended: the last one of a run still being written may not be."""
    with file.open("rb") as opened:
        for number, line in enumerate(opened, start=1):
            if line.strip():
                yield f"{file.name} line {number}", line, line.endswith(b"\n")


def _read_line(line: bytes, place: str, is_complete: bool) -> tuple[tuple[int, bool, str], dict, dict]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        if not is_complete:
            raise _Unusable("half a line at the end of a file, the run is still writing it") from error
        raise _Unusable("not readable as JSON") from error
    if not isinstance(fields, dict) or "format" not in fields:
        raise _Unusable("not a rollout")
    if fields["format"] != FORMAT:
        raise _Unusable(f"written in the format {str(fields['format'])[:60]!r}, this version reads {FORMAT!r}")
    try:
        key = (int(fields["step"]), bool(fields["validate"]), str(fields["group"]))
        return key, rollout_view.view_task(fields), rollout_view.view_rollout(fields, place)
    except KeyError as error:
        raise _Unusable(f"the rollout has no {error}") from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _Unusable("a field of the rollout is of another type than expected") from error
