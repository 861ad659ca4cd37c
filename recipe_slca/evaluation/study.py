"""The matched study's result: what each estimator reached at each noise of the judge, with intervals over seeds.

    python -m recipe_slca.evaluation.study outputs/study

Reads the finished runs of `run_scripts/study_slca_vs_grpo.sh` (folders ESTIMATOR-noiseSTD-seedN in STUDY/runs) and
writes into STUDY: summary.json (every figure, with each run's command and learning curve), tables.md and study.png.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = "slca-study/1"
METRICS = {
    "success@0.9": "Success@0.9",
    "reward/process/mean": "Process",
    "tool_turns": "Tool turns",
    "redundant_calls": "Redundant calls",
    "omission_share": "Rollouts without a readable call",
    "reward/summary/mean": "Summary (with the judge's noise)",
}
"""Metrics of the last validation (`slca/val/...`), and how a table calls them."""
CURVES = (
    *("slca/success@0.9", "slca/reward/process/mean"),
    *("slca/tool_turns", "slca/redundant_calls", "slca/omission_share"),
)
"""Metrics of the training steps whose whole curve goes into the summary."""
CONFIDENCE = 0.95
_NAME = re.compile(r"(?P<estimator>[a-z_]+)-noise(?P<noise>[\d.]+)-seed(?P<seed>\d+)")


class StudyError(ValueError):
    """There is nothing to summarise; the message names the folder and what is missing."""


@dataclass(frozen=True)
class StudyRun:
    """One finished training: its place in the study, last validation, curves and exact command."""

    estimator: str
    noise: float
    seed: int
    steps: int
    metrics: dict[str, float]
    curves: dict[str, list[float]]
    command: str
    gradients: dict[str, Any] | None


def read_runs(study: Path) -> list[StudyRun]:
    """The finished runs in order of noise, estimator and seed. Raises `StudyError` when there is none."""
    from recipe_slca.report import run_logs

    folders = sorted(folder.parent for folder in (study / "runs").glob("*/finished"))
    if not folders:
        raise StudyError(f"no finished run in {study / 'runs'}: run run_scripts/study_slca_vs_grpo.sh first")
    runs = []
    for folder in folders:
        place = _NAME.fullmatch(folder.name)
        if not place:
            raise StudyError(f"{folder} is not named ESTIMATOR-noiseSTD-seedN")
        (log,) = run_logs.read([folder / "metrics.jsonl"])
        runs.append(
            StudyRun(
                place["estimator"],
                float(place["noise"]),
                int(place["seed"]),
                log.last_step,
                _last_validation(log),
                {metric: list(log.values[metric].values()) for metric in CURVES},
                _command(folder),
                _gradients(folder),
            )
        )
    return sorted(runs, key=lambda run: (run.noise, run.estimator, run.seed))


def summarise(runs: Sequence[StudyRun], start: dict[str, float], reference: str) -> dict[str, Any]:
    """Means over seeds and paired differences from `reference`, each with its t interval, as a JSON object.

    A difference is taken over the seeds that both estimators finished. An interval is None for one seed.
    """
    values = {(run.noise, run.estimator, run.seed): run.metrics for run in runs}
    cells = {}
    for noise, estimator in sorted({(run.noise, run.estimator) for run in runs}):
        seeds = sorted(run.seed for run in runs if (run.noise, run.estimator) == (noise, estimator))
        paired = [seed for seed in seeds if (noise, reference, seed) in values]
        cells.setdefault(f"{noise:g}", {})[estimator] = {
            metric: {
                "seeds": seeds,
                "mean": _interval([values[noise, estimator, seed][metric] for seed in seeds]),
                f"minus_{reference}": _interval(
                    [values[noise, estimator, seed][metric] - values[noise, reference, seed][metric] for seed in paired]
                ),
            }
            for metric in METRICS
        }
    return {
        "format": FORMAT,
        "reference": reference,
        "confidence": CONFIDENCE,
        "start": start,
        "cells": cells,
        "gradients": _gradients_by_noise(runs),
        "runs": [vars(run) for run in runs],
    }


def tables(summary: dict[str, Any]) -> str:
    """The summary as Markdown tables: a row for each estimator, a column for each noise, then the differences."""
    reference, cells = summary["reference"], summary["cells"]
    parts = []
    for metric, name in METRICS.items():
        rows = [["", *(f"noise {noise}" for noise in cells), *(f"minus {reference}, noise {noise}" for noise in cells)]]
        for estimator in _estimators(summary):
            measured = [cell.get(estimator, {}).get(metric, {}) for cell in cells.values()]
            differences = [
                "" if estimator == reference else _shown(one.get(f"minus_{reference}"), "+") for one in measured
            ]
            rows.append([f"`{estimator}`", *(_shown(one.get("mean")) for one in measured), *differences])
        parts.append(f"**{name}** (start: {summary['start'][metric]:.3f})\n\n{_markdown(rows)}")
    if summary["gradients"]:
        rows = [["judge noise", "batches", "cosine tool, summary", "tool, next batch", "summary, next batch"]]
        for noise, measured in summary["gradients"].items():
            kinds = ("cosine", "cosine_tool_next_batch", "cosine_summary_next_batch")
            rows.append([noise, str(measured["cosine"]["n"]), *(_shown(measured.get(kind), "+") for kind in kinds)])
        parts.append(f"**Gradient cosines** at the start, `slca`\n\n{_markdown(rows)}")
    return "\n\n".join(parts) + "\n"


def draw(study: Path, summary: dict[str, Any], path: Path) -> None:
    """Learning curves: a column for each noise, a line for each estimator with the range of its seeds."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from recipe_slca.report import curve_lines, figures, run_logs

    logs = run_logs.read([study / "runs" / _folder_name(run) for run in summary["runs"]])
    lines = {line.name: line for line in curve_lines.to_lines(logs)}
    shown = {"slca/success@0.9": "Success@0.9", "slca/tool_turns": "tool turns"}
    noises, estimators = list(summary["cells"]), _estimators(summary)
    canvas = Figure(figsize=(3.6 * len(noises), 5.2), layout="constrained")
    axes = canvas.subplots(len(shown), len(noises), squeeze=False, sharex=True, sharey="row")
    for row, (metric, title) in zip(axes, shown.items(), strict=True):
        row[0].set_ylabel(title)
        for panel, noise in zip(row, noises, strict=True):
            panel.set_title(f"judge noise {noise}", fontsize=10)
            panel.grid(color="#dddddd", linewidth=0.6)
            for number, estimator in enumerate(estimators):
                if line := lines.get(f"{estimator}-noise{noise}"):
                    figures.draw_line(panel, line, metric, number, smooth=5)
    for panel in axes[-1]:
        panel.set_xlabel("step")
    handles = [Line2D([], [], **figures.line_style(number)) for number in range(len(estimators))]
    canvas.legend(handles, estimators, loc="outside upper center", ncols=len(estimators), frameon=False)
    canvas.savefig(path, dpi=110, metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m recipe_slca.evaluation.study", description=__doc__.split("\n")[0])
    parser.add_argument("study", type=Path, help="folder of run_scripts/study_slca_vs_grpo.sh")
    parser.add_argument("--reference", default="grpo", help="what the others are compared with (%(default)s)")
    options = parser.parse_args(argv)
    try:
        runs = read_runs(options.study)
        summary = summarise(runs, _start(options.study), options.reference)
    except (StudyError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (options.study / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    text = tables(summary)
    (options.study / "tables.md").write_text(text, encoding="utf-8")
    draw(options.study, summary, options.study / "study.png")
    print(text)
    print(f"written: {options.study}/summary.json, tables.md, study.png")
    return 0


def _last_validation(log: Any) -> dict[str, float]:
    missing = [metric for metric in METRICS if not log.values.get(f"slca/val/{metric}")]
    if missing:
        raise StudyError(f"{log.path} has no validation with slca/val/{missing[0]}")
    return {metric: list(log.values[f"slca/val/{metric}"].values())[-1] for metric in METRICS}


def _start(study: Path) -> dict[str, float]:
    from recipe_slca.report import run_logs

    (log,) = run_logs.read([study / "validation" / "metrics.jsonl"])
    return _last_validation(log)


def _command(folder: Path) -> str:
    import yaml

    overrides = yaml.safe_load((folder / "hydra/.hydra/overrides.yaml").read_text(encoding="utf-8"))
    return " ".join(
        ["python -m verl.trainer.main_ppo --config-path=pkg://recipe_slca.config --config-name=slca_cpu", *overrides]
    )


def _gradients(folder: Path) -> dict[str, Any] | None:
    path = folder / "gradients.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _gradients_by_noise(runs: Sequence[StudyRun]) -> dict[str, Any]:
    measured: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for batch in run.gradients["batches"] if run.gradients else []:
            for name, value in batch.items():
                if value is not None:
                    measured.setdefault(f"{run.noise:g}", {}).setdefault(name, []).append(value)
    return {noise: {name: _interval(values) for name, values in by_name.items()} for noise, by_name in measured.items()}


def _interval(values: Sequence[float]) -> dict[str, float | None] | None:
    """Mean and half the width of its t interval."""
    if not values:
        return None
    half = None
    if len(values) > 1:
        from scipy.stats import t

        half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return {"n": len(values), "mean": statistics.fmean(values), "half_width": half}


def _estimators(summary: dict[str, Any]) -> list[str]:
    found = sorted({estimator for cell in summary["cells"].values() for estimator in cell})
    return sorted(found, key=lambda estimator: (estimator != summary["reference"], found.index(estimator)))


def _folder_name(run: dict[str, Any]) -> str:
    return f"{run['estimator']}-noise{run['noise']:g}-seed{run['seed']}"


def _shown(interval: dict[str, Any] | None, sign: str = "") -> str:
    if interval is None:
        return "-"
    half = "" if interval["half_width"] is None else f" ± {interval['half_width']:.3f}"
    return f"{interval['mean']:{sign}.3f}{half}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([header, "|" + " --- |" * len(rows[0]), *body])


if __name__ == "__main__":
    sys.exit(main())
