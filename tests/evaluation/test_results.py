"""results.json, its table, and the comparison of two runs, from a dump in the plugin's own format."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe_slca.evaluation import compare, results
from recipe_slca.evaluation.intervals import mean_interval
from recipe_slca.evaluation.results import METRICS, ResultsError
from recipe_slca.metrics import RolloutRecord
from recipe_slca.verl_plugin import rollout_dump

KINDS = ("single_step_single_tool", "single_step_parallel")


def write_dump(run_dir: Path, scores: dict[int, list[float]], step: int = 0) -> Path:
    """A validation dump: for each task number the process rewards of its rollouts."""
    records = []
    for number, rewards in scores.items():
        for rollout, reward in enumerate(rewards):
            details = {
                "prompt": [{"role": "user", "content": f"question {number}"}],
                "gold_calls": [],
                "task": {"parallel_type": KINDS[number % 2]},
                "runs": [],
            }
            values = dict.fromkeys(METRICS, 0.5) | {"process": reward, "success_0.9": float(reward >= 0.9)}
            # verl names groups anew in every run.
            record = RolloutRecord(f"{run_dir.name}-{number}", rollout, reward, 0.5, [reward, 0.5], values, details)
            records.append(record)
    shared = {"step": step, "validate": True, "estimator": "slca"}
    rollout_dump.write(run_dir / rollout_dump.FOLDER / f"val_{step}.jsonl", records, shared, None)
    return run_dir


def evaluate(run_dir: Path, scores: dict[int, list[float]]) -> Path:
    write_dump(run_dir, scores)
    assert results.main([str(run_dir)]) == 0
    return run_dir


def tasks_file(path: Path, rows: int) -> Path:
    pq.write_table(pa.table({"prompt": ["?"] * rows}), path)
    return path


def test_means_are_over_tasks_and_by_kind(tmp_path, capsys):
    run = evaluate(tmp_path / "run", {0: [1.0, 1.0, 1.0, 1.0], 1: [0.0], 2: [0.5]})
    content = json.loads((run / "results.json").read_text())
    everything = content["kinds"]["all"]
    assert (everything["tasks"], everything["rollouts"]) == (3, 6)
    assert everything["metrics"]["process"]["mean"] == pytest.approx(0.5)  # of tasks, not of rollouts
    assert everything["metrics"]["success_0.9"]["mean"] == pytest.approx(1 / 3)
    assert content["kinds"][KINDS[0]]["metrics"]["process"]["mean"] == pytest.approx(0.75)
    alone = content["kinds"][KINDS[1]]["metrics"]["process"]
    assert alone == {"mean": 0.0, "low": None, "high": None}
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("Name F1", "ArgMatch", "Success@0.9", "Redundant calls", *KINDS))


def test_the_same_dump_gives_the_same_file(tmp_path):
    scores = {number: [number / 10, 0.3] for number in range(10)}
    one, other = evaluate(tmp_path / "a" / "run", scores), evaluate(tmp_path / "b" / "run", scores)
    assert (one / "results.json").read_bytes() == (other / "results.json").read_bytes()


def test_the_newest_validation_counts(tmp_path, capsys):
    write_dump(tmp_path, {0: [0.1]}, step=9)
    write_dump(tmp_path, {0: [0.2]}, step=10)
    results.main([str(tmp_path)])
    assert json.loads((tmp_path / "results.json").read_text())["step"] == 10
    results.main([str(tmp_path), "--step", "9"])
    assert json.loads((tmp_path / "results.json").read_text())["step"] == 9


def test_a_complete_dump_is_told_from_one_that_is_cut_off(tmp_path, capsys):
    run = write_dump(tmp_path / "run", {0: [0.1, 0.2], 1: [0.3, 0.4]})
    assert results.main([str(run), "--tasks", str(tasks_file(tmp_path / "2.parquet", 2)), "--samples", "2"]) == 0
    (run / "results.json").unlink()
    three = str(tasks_file(tmp_path / "3.parquet", 3))
    assert results.main([str(run), "--tasks", three, "--samples", "2"]) == 1
    assert "4 rollouts of step 0" in (error := capsys.readouterr().err) and "expected are 6 (3 rows x 2)" in error
    (run / "log.jsonl").write_text(json.dumps({"step": 0, "data": {"slca/val/rollouts": 6.0}}) + "\n{half")
    assert results.main([str(run), "--tasks", three, "--samples", "2"]) == 1
    assert "raise slca.dump.max_rollouts" in capsys.readouterr().err
    (run / "log.jsonl").write_text(json.dumps({"step": 0, "data": {"slca/failed_rollouts": 2.0}}) + "\n")
    assert results.main([str(run), "--tasks", three, "--samples", "2"]) == 1
    assert "2 rollouts failed" in capsys.readouterr().err
    assert not (run / "results.json").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [("{half", "line 2: not JSON"), ('{"format": "other"}', "line 2: not a rollout"), ("[]", "line 2: not a rollout")],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, said):
    write_dump(tmp_path, {0: [0.1]})
    with (tmp_path / rollout_dump.FOLDER / "val_0.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ResultsError, match=said):
        results.read_validation(tmp_path)


def test_a_run_without_validation_is_named(tmp_path):
    with pytest.raises(ResultsError, match="no validation"):
        results.read_validation(tmp_path)


def test_comparison_is_paired_by_task(tmp_path, capsys):
    better = evaluate(tmp_path / "better", {number: [number / 20 + 0.1] for number in range(10)})
    worse = evaluate(tmp_path / "worse", {number: [number / 20] for number in range(12)})
    rows = compare.compare(compare.read_side([better]), compare.read_side([worse]))
    row = next(row for row in rows if (row.kind, row.metric) == ("all", "process"))
    assert row.tasks == 10
    # Every difference is 0.1, so the interval is a point, however far apart the tasks are.
    assert (row.difference.low, row.difference.high) == pytest.approx((0.1, 0.1))
    assert compare.main([str(better), str(worse)]) == 0
    shown = capsys.readouterr()
    assert "+0.100" in shown.out and "2 tasks were measured by one side only" in shown.err


def test_a_side_may_be_several_seeds(tmp_path):
    seeds = [evaluate(tmp_path / f"seed{seed}", {0: [0.2 * seed], 1: [0.5]}) for seed in (1, 2, 3)]
    side = compare.read_side(seeds)
    assert sorted(values["process"] for values in side.values.values()) == pytest.approx([0.4, 0.5])


def test_what_cannot_be_compared_is_named(tmp_path, capsys):
    one = evaluate(tmp_path / "one", {0: [0.1]})
    other = evaluate(tmp_path / "other", {5: [0.1]})
    assert compare.main([str(one), str(other)]) == 1
    assert "no task in common" in capsys.readouterr().err
    assert compare.main([str(one), str(tmp_path)]) == 1
    assert "recipe_slca.evaluation.results" in capsys.readouterr().err
    (tmp_path / "results.json").write_text('{"overall": 0.3}')
    assert compare.main([str(one), str(tmp_path)]) == 1
    assert "slca-results/1" in capsys.readouterr().err


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_intervals_hold_the_mean_and_stay_within_the_values(values, seed):
    interval = mean_interval(values, seed)
    assert min(values) - 1e-12 <= interval.low <= interval.mean + 1e-12
    assert interval.mean - 1e-12 <= interval.high <= max(values) + 1e-12
    assert mean_interval(values, seed) == interval


def test_intervals_cover_the_true_mean_about_as_often_as_they_say():
    draw = np.random.default_rng(5)
    intervals = [mean_interval(draw.random(60).tolist()) for _ in range(50)]
    covered = sum(interval.low <= 0.5 <= interval.high for interval in intervals)
    assert 42 <= covered <= 50


def test_the_commands_say_how_they_are_called():
    for module in ("results", "compare"):
        command = [sys.executable, "-m", f"recipe_slca.evaluation.{module}", "--help"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "RUN" in done.stdout
