"""The matched study in small, by run_scripts/study_slca_vs_grpo.sh, which makes the published one."""

import json


def test_the_study_runs_once(study, run_study):
    output = (study / "output.log").read_text()
    summary = json.loads((study / "summary.json").read_text())
    cell = summary["cells"]["1"]
    assert set(cell) == {"grpo", "slca"}
    assert cell["slca"]["success@0.9"]["minus_grpo"]["n"] == 1
    assert [run["steps"] for run in summary["runs"]] == [2, 2]
    assert {len(curve) for run in summary["runs"] for curve in run["curves"].values()} == {2}
    assert "data.max_response_length=96" in summary["runs"][0]["command"]
    assert summary["gradients"]["1"]["norm_summary"]["mean"] > 0
    assert "runs/grpo-noise1-seed1" in output and "**Success@0.9**" in output

    again = run_study(study)
    assert "noise1-seed1" not in again and "**Success@0.9**" in again
    assert json.loads((study / "summary.json").read_text()) == summary
