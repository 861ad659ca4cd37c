"""The account of a build, for programs (report.json) and for people (report.md)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import page
from data_prep.pipeline import Account, SplitAccount
from data_prep.reasons import NOTES, REASONS

QUANTILES = (0, 10, 50, 90, 99, 100)


class AccountError(RuntimeError):
    """Rows in and rows accounted for differ: a fault of this program, not of the data."""


def summarise(account: Account, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The report as a plain dict. Raises `AccountError` when rows in is not rows out plus rows counted."""
    used = {name: split.conversations for name, split in account.splits.items()}
    accounted = sum(used.values()) + account.dropped.total() + account.not_selected
    if accounted != account.read:
        raise AccountError(f"{account.read} rows were read but {accounted} are accounted for")
    return {
        "settings": dict(settings),
        "rows_in": account.read,
        "conversations_used": used,
        "not_selected": account.not_selected,
        "dropped": {reason: account.dropped[reason] for reason in REASONS if account.dropped[reason]},
        "examples": {reason: account.examples[reason] for reason in REASONS if reason in account.examples},
        "notes": {note: account.notes[note] for note in NOTES if account.notes[note]},
        "splits": {name: _summarise_split(split) for name, split in account.splits.items()},
    }


def _summarise_split(split: SplitAccount) -> dict[str, Any]:
    return {
        "rows": split.rows,
        "conversations": split.conversations,
        "kinds": dict(sorted(split.kinds.items())),
        **{name: _quantiles(parts) for name, parts in split.lengths.items()},
    }


def _quantiles(parts: list[np.ndarray]) -> dict[str, int]:
    if not parts:
        return {}
    found = np.percentile(np.concatenate(parts), QUANTILES, method="inverted_cdf")
    return {f"p{quantile}": int(value) for quantile, value in zip(QUANTILES, found, strict=True)}


def write(report: Mapping[str, Any], account: Account, folder: Path) -> None:
    """Write report.json and report.md."""
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(render(report, account), encoding="utf-8")


def render(report: Mapping[str, Any], account: Account) -> str:
    """The report as Markdown."""
    lines = ["# Data report", "", f"{report['rows_in']} rows read. Each is in one line of this table.", ""]
    where = {f"used in {name}": rows for name, rows in report["conversations_used"].items()}
    where["fit for use, but not drawn for a split"] = report["not_selected"]
    where |= {f"`{reason}`: {REASONS[reason]}": rows for reason, rows in report["dropped"].items()}
    lines += _table(["what became of it", "rows"], where.items())
    if report["notes"]:
        lines += ["", "Counted, but kept:", "", *_table(["note", "count"], _explained(report["notes"], NOTES))]
    for name, split in report["splits"].items():
        lines += ["", f"## {name}", "", f"{split['rows']} rows of {split['conversations']} conversations.", ""]
        lines += _table(["kind", "rows"], split["kinds"].items())
        quantiles = [f"p{quantile}" for quantile in QUANTILES]
        measures = {
            "bytes of text in the dialogue" if name == "sft" else "bytes of text in the prompt": split["bytes"],
            "tools": split["tools"],
            "calls" if name == "sft" else "gold calls": split["calls"],
        }
        rows = [(what, *(found.get(key, "") for key in quantiles)) for what, found in measures.items()]
        lines += ["", *_table(["a row's", *quantiles], rows)]
    for reason, examples in report["examples"].items():
        lines += ["", f"First rows dropped as `{reason}`:", "", page.fenced(page.safe("\n".join(examples)))]
    for name, split in account.splits.items():
        if split.shown:
            lines += ["", f"## A row of {name}", "", page.fenced(page.render(split.shown))]
    return "\n".join(lines) + "\n"


def _explained(counts: Mapping[str, int], meanings: Mapping[str, str]) -> list[tuple[str, int]]:
    return [(f"`{name}`: {meanings[name]}", count) for name, count in counts.items()]


def _table(head: list[str], rows: Any) -> list[str]:
    def line(cells: Any) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return [line(head), "|" + "---|" + "---:|" * (len(head) - 1), *map(line, rows)]
