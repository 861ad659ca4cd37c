"""The matched study in small: one seed, two estimators, two steps, from the script that makes the published one."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "run_scripts/study_slca_vs_grpo.sh"
SMALL = {"SEEDS": "1", "NOISES": "1", "ESTIMATORS": "grpo slca", "SFT_STEPS": "40", "RL_STEPS": "2"}


def run_study(folder: Path) -> str:
    done = subprocess.run(
        ("bash", str(SCRIPT), "data.val_max_samples=4", "data.max_response_length=96"),
        env={**os.environ, **SMALL, "STUDY": str(folder), "VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-6000:]
    return done.stdout


def test_the_study_runs_once(tmp_path):
    output = run_study(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    cell = summary["cells"]["1"]
    assert set(cell) == {"grpo", "slca"}
    assert cell["slca"]["success@0.9"]["minus_grpo"]["n"] == 1
    assert [run["steps"] for run in summary["runs"]] == [2, 2]
    assert {len(curve) for run in summary["runs"] for curve in run["curves"].values()} == {2}
    assert "data.max_response_length=96" in summary["runs"][0]["command"]
    assert summary["gradients"]["1"]["norm_summary"]["mean"] > 0
    assert "runs/grpo-noise1-seed1" in output and "**Success@0.9**" in output

    again = run_study(tmp_path)
    assert "noise1-seed1" not in again and "**Success@0.9**" in again
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
