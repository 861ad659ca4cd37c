"""The matched study's summary: figures by hand, and the published text against the published figures."""

import json
from pathlib import Path

import pytest

from recipe_slca.evaluation import study

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "run_scripts/study_slca_vs_grpo.json"


def write_run(root: Path, name: str, success: float, finished: bool = True, steps: int = 3) -> Path:
    folder = root / name
    (folder / "hydra/.hydra").mkdir(parents=True)
    (folder / "hydra/.hydra/overrides.yaml").write_text("- algorithm.adv_estimator=x\n- data.seed=1\n")
    with (folder / "metrics.jsonl").open("w") as log:
        for step in range(1, steps + 1):
            data = {metric: step / 10 for metric in study.CURVES}
            if step == steps:
                data |= {f"slca/val/{metric}": success for metric in study.METRICS}
            log.write(json.dumps({"step": step, "data": data}) + "\n")
    if finished:
        (folder / "finished").touch()
    return folder


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path, "validation", 0.25, steps=1)
    for seed, (grpo, slca) in enumerate([(0.3, 0.5), (0.2, 0.6), (0.4, 0.6)], start=1):
        write_run(tmp_path / "runs", f"grpo-noise0.5-seed{seed}", grpo)
        write_run(tmp_path / "runs", f"slca-noise0.5-seed{seed}", slca)
    write_run(tmp_path / "runs", "slca-noise0.5-seed4", 0.9)
    write_run(tmp_path / "runs", "grpo-noise0.5-seed4", 0.9, finished=False)
    write_run(tmp_path / "runs", "toolpo-noise1-seed1", 0.1)
    gradients = {"batches": [{"cosine": 0.1, "norm_tool": 2.0, "cosine_tool_next_batch": None}, {"cosine": 0.3}]}
    (tmp_path / "runs/slca-noise0.5-seed1/gradients.json").write_text(json.dumps(gradients))
    return tmp_path


def test_means_and_paired_differences_over_the_seeds_of_both(folder):
    assert study.main([str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    slca = summary["cells"]["0.5"]["slca"]["success@0.9"]
    assert slca["seeds"] == [1, 2, 3, 4]
    assert slca["mean"]["mean"] == pytest.approx(0.65)
    difference = slca["minus_grpo"]
    assert difference["n"] == 3
    assert difference["mean"] == pytest.approx(0.8 / 3)
    # Differences 0.2, 0.4, 0.2: standard deviation 0.11547, t(0.975, 2) = 4.3027.
    assert difference["half_width"] == pytest.approx(4.3027 * 0.11547 / 3**0.5, rel=1e-4)
    assert summary["cells"]["0.5"]["grpo"]["success@0.9"]["minus_grpo"]["mean"] == 0
    assert summary["cells"]["1"]["toolpo"]["success@0.9"]["mean"] == {"n": 1, "mean": 0.1, "half_width": None}
    assert summary["cells"]["1"]["toolpo"]["success@0.9"]["minus_grpo"] is None
    assert summary["start"]["success@0.9"] == 0.25
    assert summary["gradients"]["0.5"]["cosine"]["mean"] == pytest.approx(0.2)
    assert [run["curves"]["slca/tool_turns"] for run in summary["runs"]] == [[0.1, 0.2, 0.3]] * 8
    assert summary["runs"][0]["command"].endswith("algorithm.adv_estimator=x data.seed=1")


def test_tables_and_picture(folder):
    study.main([str(folder)])
    text = (folder / "tables.md").read_text()
    assert "|  | noise 0.5 | noise 1 | minus grpo, noise 0.5 | minus grpo, noise 1 |" in text
    assert "| `grpo` | 0.300 ± 0.248 | - |  |  |" in text
    assert "| `slca` | 0.650 ± 0.276 | - | +0.267 ± 0.287 | - |" in text
    assert "| `toolpo` | - | 0.100 | - | - |" in text
    assert (folder / "study.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_finished_is_an_error(tmp_path, capsys):
    write_run(tmp_path / "runs", "grpo-noise0-seed1", 0.5, finished=False)
    assert study.main([str(tmp_path)]) == 1
    assert "no finished run" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["grpo", "grpo-noise-seed1", "slca-noise1"])
def test_a_foreign_folder_is_an_error(tmp_path, capsys, name):
    write_run(tmp_path / "runs", name, 0.5)
    assert study.main([str(tmp_path)]) == 1
    assert "is not named" in capsys.readouterr().err


def test_a_run_without_validation_is_an_error(tmp_path, capsys):
    folder = write_run(tmp_path / "runs", "grpo-noise0-seed1", 0.5)
    lines = (folder / "metrics.jsonl").read_text().splitlines()[:-1]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert study.main([str(tmp_path)]) == 1
    assert "has no validation" in capsys.readouterr().err


def test_the_published_tables_are_those_of_the_published_figures():
    summary = json.loads(PUBLISHED.read_text())
    assert study.tables(summary) in (ROOT / "STUDY.md").read_text()
    runs = [study.StudyRun(**run) for run in summary["runs"]]
    again = study.summarise(runs, summary["start"], summary["reference"])
    assert study.tables(json.loads(json.dumps(again))) == study.tables(summary)
