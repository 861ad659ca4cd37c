"""Curves: reading logs, grouping runs into lines, and what is drawn."""

import json
import math

import numpy as np
import pytest
from chromium import loaded_files, open_page
from make_dump import write_log
from matplotlib.image import imread

from recipe_slca.report import figures, run_logs
from recipe_slca.report.curve_lines import to_lines
from recipe_slca.report.curves import write_report
from recipe_slca.report.errors import ReportError

SUCCESS = "slca/success@0.9"


def _log(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"step": step, "data": {SUCCESS: value}}) for step, value in values.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def _names(tmp_path, *paths):
    for path in paths:
        _log(tmp_path / path, {1: 0.5})
    return [(run.line, run.seed) for run in run_logs.read([tmp_path / path for path in paths])]


@pytest.mark.parametrize(
    "name, line, seed",
    [
        ("slca_seed1", "slca", 1),
        ("slca-seed-12", "slca", 12),
        ("slca.Seed_3", "slca", 3),
        ("slcaseed4", "slca", 4),
        ("slca", "slca", None),
        ("slca_1", "slca_1", None),
        ("seed_study", "seed_study", None),
        ("slca_seed1_long", "slca_seed1_long", None),
    ],
)
def test_a_trailing_seed_is_not_part_of_the_line(tmp_path, name, line, seed):
    assert _names(tmp_path, f"{name}.jsonl") == [(line, seed)]


def test_names_that_meet_get_parts_of_their_path(tmp_path):
    assert _names(tmp_path, "slca/seed1.jsonl", "slca/seed2.jsonl", "grpo/seed1.jsonl") == [
        ("slca", 1),
        ("slca", 2),
        ("grpo", 1),
    ]
    assert _names(tmp_path, "quiet/slca_seed1.jsonl", "noisy/slca_seed1.jsonl") == [
        ("quiet/slca", 1),
        ("noisy/slca", 1),
    ]


def test_a_folder_with_one_log_names_its_run_and_with_several_each_file_does(tmp_path):
    _log(tmp_path / "slca_seed1" / "metrics.jsonl", {1: 0.5})
    _log(tmp_path / "others" / "grpo_seed1.jsonl", {1: 0.5})
    _log(tmp_path / "others" / "grpo_seed2.jsonl", {1: 0.5})
    runs = run_logs.read([tmp_path / "slca_seed1", tmp_path / "others"])
    assert [run.name for run in runs] == ["slca_seed1", "grpo_seed1", "grpo_seed2"]


def test_paths_without_a_log_are_refused(tmp_path):
    log = _log(tmp_path / "a.jsonl", {1: 0.5})
    with pytest.raises(ReportError, match="given twice"):
        run_logs.read([log, log])
    with pytest.raises(ReportError, match="no folder and no .jsonl file"):
        run_logs.read([tmp_path / "nowhere"])
    (tmp_path / "bare").mkdir()
    with pytest.raises(ReportError, match="VERL_FILE_LOGGER_PATH"):
        run_logs.read([tmp_path / "bare"])
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ReportError, match="has not finished its first step"):
        run_logs.read([tmp_path / "empty.jsonl"])


def test_bad_lines_are_counted_and_the_rest_is_read(tmp_path):
    log = tmp_path / "run.jsonl"
    good = [json.dumps({"step": step, "data": {SUCCESS: 0.1 * step, "text": "x"}}) for step in (1, 2, 3)]
    log.write_bytes(
        "\n".join(
            [good[0], "{broken", '{"step": 9}', good[1], "\udcff", '{"step": 4, "data": {"a": null}}', ""]
        ).encode("utf-8", "surrogateescape")
        + good[2].encode()[:20]
    )
    (run,) = run_logs.read([log])
    assert run.values == {SUCCESS: {1: 0.1, 2: 0.2}}
    assert run.notes == [
        "the last line is half written: the run is still going on, or was stopped there",
        "3 corrupt lines skipped (first: line 2)",
    ]


def test_a_step_logged_again_after_a_restart_counts_once(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text(
        "".join(json.dumps({"step": s, "data": {SUCCESS: v}}) + "\n" for s, v in [(1, 0.1), (2, 0.9), (2, 0.2)])
    )
    assert run_logs.read([log])[0].values[SUCCESS] == {1: 0.1, 2: 0.2}


def test_logs_of_verls_own_loggers_read_alike(tmp_path, monkeypatch):
    tracking = pytest.importorskip("verl.utils.tracking", reason="verl is not installed")
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "file.jsonl"))
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "events"))
    loggers = [tracking.FileLogger("project", "run"), tracking._TensorboardAdapter("project", "run")]
    for step in range(1, 30):
        for logger in loggers:
            data = {SUCCESS: np.float64(step / 64), "slca/calls": step, "nan": math.nan if step % 2 else 1.0}
            logger.log(data=data, step=step)
    for logger in loggers:
        logger.finish()
    of_file, of_events = run_logs.read([tmp_path / "file.jsonl", tmp_path / "events"])
    assert of_file.values == of_events.values
    assert of_file.values[SUCCESS] == {step: step / 64 for step in range(1, 30)}
    assert list(of_file.values["nan"]) == list(range(2, 30, 2))


def test_a_line_is_the_mean_and_range_of_its_seeds(tmp_path):
    values = np.random.default_rng(0).random((3, 20))
    for seed, of_seed in enumerate(values):
        _log(tmp_path / f"slca_seed{seed}.jsonl", dict(enumerate(of_seed.tolist())))
    (line,) = to_lines(run_logs.read([tmp_path]))
    curve = line.curve(SUCCESS)
    np.testing.assert_array_equal(curve.steps, range(20))
    np.testing.assert_allclose(curve.mean, values.mean(axis=0))
    np.testing.assert_array_equal(curve.low, values.min(axis=0))
    np.testing.assert_array_equal(curve.high, values.max(axis=0))
    smooth = line.curve(SUCCESS, smooth=4)
    np.testing.assert_allclose(smooth.mean[7], values[:, 4:8].mean())
    np.testing.assert_allclose(smooth.mean[1], values[:, :2].mean())
    assert line.notes() == []


def test_the_mean_ends_with_the_first_seed_that_ends_and_says_so(tmp_path):
    _log(tmp_path / "slca_seed1.jsonl", {1: 0.0, 2: 0.0, 3: 0.0})
    _log(tmp_path / "slca_seed2.jsonl", {1: 1.0, 2: 1.0})
    (line,) = to_lines(run_logs.read([tmp_path]))
    curve = line.curve(SUCCESS)
    assert (curve.steps.tolist(), curve.mean.tolist()) == ([1, 2], [0.5, 0.5])
    assert line.notes() == ["slca: the mean ends at step 2 of 3, because slca_seed2 ends there"]
    assert line.curve("slca/calls").steps.size == 0


def test_lines_differ_without_colour():
    styles = [figures.line_style(number) for number in range(20)]
    assert len({(style["linestyle"], style["marker"]) for style in styles}) == 20


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    logs, output = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("curves")
    for name, gain in (("grpo", 0.2), ("slca", 0.4), ("<script>window.wasRun=true<$x$_$", 0.3)):
        for seed in (1, 2):
            write_log(logs / f"{name}_seed{seed}.jsonl", seed, steps=12, gain=gain)
    (logs / "slca_seed2.jsonl").open("a").write('{"step": 13, "da')
    return run_logs.read([logs]), output, write_report(run_logs.read([logs]), output)


def test_every_figure_is_a_picture_with_one_panel_a_metric(report):
    runs, output, _ = report
    chosen = figures.choose_figures(runs)
    assert {figure.file for figure in chosen} == {file.name for file in output.glob("*.png")}
    assert {"success_and_turns.png", "process_terms.png", "advantages.png", "endings.png"} <= {f.file for f in chosen}
    for figure in chosen:
        picture = imread(output / figure.file)
        assert picture.shape[1] >= 600
        assert 0.01 < (picture[:, :, :3].min(axis=2) < 0.9).mean() < 0.5
    assert [len(figure.panels) for figure in chosen if figure.file == "process_terms.png"] == [5]


def test_the_same_logs_give_the_same_report(tmp_path):
    runs = run_logs.read([_log(tmp_path / "run.jsonl", {1: 0.1, 2: 0.4, 3: 0.2})])
    first, second = (write_report(runs, tmp_path / name) for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_the_page_tells_values_seeds_and_what_is_missing(report):
    runs, _, page = report
    text = page.read_text()
    line = next(line for line in to_lines(runs) if line.name == "grpo")
    assert f"{line.curve(SUCCESS).mean[-1]:.3f}" in text
    assert "from the lowest to the highest seed" in text
    assert "slca_seed2: the last line is half written" in text
    assert "<script" not in text


def test_figures_without_data_are_left_out_and_named(tmp_path):
    _log(tmp_path / "run.jsonl", {1: 0.1, 2: 0.2})
    page = write_report(run_logs.read([tmp_path / "run.jsonl"]), tmp_path / "curves")
    assert {file.name for file in page.parent.glob("*.png")} == {"success.png", "success_and_turns.png"}
    assert "Segment advantages: in none of the logs" in page.read_text()


def test_counts_of_services_that_stayed_at_zero_are_left_out(tmp_path):
    data = {"slca/sgls/ok": 3.0, "slca/sgls/error/too_large": 0.0, "slca/ended/aborted": 0.0, "val-aux/x/mean@3": 1.0}
    log = tmp_path / "run.jsonl"
    log.write_text(json.dumps({"step": 1, "data": data}) + "\n")
    chosen = figures.choose_figures(run_logs.read([log]))
    assert {figure.file: list(figure.panels) for figure in chosen} == {
        "simulator.png": ["slca/sgls/ok"],
        "endings.png": ["slca/ended/aborted"],
    }


def test_logs_without_a_drawn_metric_are_refused(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text('{"step": 1, "data": {"other/metric": 1.0}}\n')
    with pytest.raises(ReportError, match="no log has a metric that is drawn"):
        write_report(run_logs.read([log]), tmp_path / "curves")


def test_the_page_opens_in_a_browser_without_a_complaint(browser, report, tmp_path):
    open_page(browser, report[2])
    sizes = browser.execute_script("return [...document.images].map((image) => image.naturalWidth)")
    assert len(sizes) == len(list(report[1].glob("*.png"))) and all(sizes)
    assert browser.save_screenshot(str(tmp_path / "curves.png"))
    assert browser.get_log("browser") == []
    assert loaded_files(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
