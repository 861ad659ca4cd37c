"""The trajectory page and the curves of a real training run, in a real browser."""

import json
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from chromium import browser, loaded_files, open_page, wait_for

from recipe_slca.report.__main__ import main

__all__ = ["browser"]
COLUMNS = "document.querySelectorAll('article')"


@pytest.fixture(scope="module")
def finished(study, tmp_path_factory):
    """A run of the small study: its log, the rollouts of its dump, the page and the curves of it."""
    folder = study / "runs/slca-noise1-seed1"
    log = {entry["step"]: entry["data"] for entry in map(json.loads, (folder / "metrics.jsonl").open())}
    files = sorted((folder / "slca_rollouts").iterdir())
    rollouts = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    output = tmp_path_factory.mktemp("report")
    page, curves = output / "rollouts.html", output / "curves"
    assert main(["trajectories", str(folder), "--output", str(page)]) == 0
    assert main(["curves", str(folder), "--output", str(curves)]) == 0
    return SimpleNamespace(log=log, rollouts=rollouts, page=page, curves=curves)


def _open_group(browser, step, validate):
    """Open the first group of a step with its columns drawn, and return the group's name."""
    position = browser.execute_script(
        "return index.groups.findIndex((g) => g.step === arguments[0] && g.validate === arguments[1])", step, validate
    )
    browser.execute_script("openGroup(arguments[0])", position)
    browser.execute_script(f"{COLUMNS}.forEach((a) => a.querySelector('.body') || drawColumn(a))")
    return browser.execute_script("return index.groups[arguments[0]].name", position)


def _shown(number, absent):
    return absent if number is None else f"{number:.2f}".replace("-", "\N{MINUS SIGN}")


def test_the_page_counts_the_rollouts_and_groups_of_the_run(browser, finished):
    open_page(browser, finished.page)
    groups = Counter((r["step"], r["validate"], r["group"]) for r in finished.rollouts)
    assert Counter(groups.values()) == {8: 16, 2: 4}
    counts = browser.execute_script("return document.getElementById('counts').textContent")
    assert re.findall(r"\d+", counts) == [str(len(finished.rollouts)), str(len(groups))]
    listed = browser.execute_script(
        "return index.groups.map((g) => [g.step, g.validate, g.name, g.rollouts.length])",
    )
    assert {tuple(key): size for *key, size in listed} == groups
    assert browser.execute_script("return document.getElementById('notes').hidden")
    assert browser.get_log("browser") == []
    assert loaded_files(browser) == []


@pytest.mark.parametrize(("step", "validate"), [(1, False), (2, False), (2, True)])
def test_rewards_and_advantages_on_the_page_are_those_of_the_run(browser, finished, tmp_path, step, validate):
    open_page(browser, finished.page)
    name = _open_group(browser, step, validate)
    assert browser.save_screenshot(str(tmp_path / "turns.png"))
    heads = browser.execute_script(f"return [...{COLUMNS}].map((a) => a.querySelector('.column-head').innerText)")
    rollouts = [r for r in finished.rollouts if (r["step"], r["validate"], r["group"]) == (step, validate, name)]
    assert len(heads) == len(rollouts) == (2 if validate else 8)
    for head, rollout in zip(heads, rollouts, strict=True):
        rewards = [_shown(rollout["tool_reward"], "none"), _shown(rollout["summary_reward"], "ungraded")]
        assert re.findall(r"^(?:none|ungraded|\N{MINUS SIGN}?\d\.\d\d)$", head, re.MULTILINE) == rewards
        assert f"ended: {rollout['trajectory']['ended']}" in head
    browser.execute_script("setView('tokens')")
    browser.execute_script(f"{COLUMNS}.forEach((a) => a.querySelector('.body') || drawColumn(a))")
    assert browser.save_screenshot(str(tmp_path / "tokens.png"))
    runs = browser.execute_script("return opened.rollouts.map((r) => r.runs.map((run) => [run.kind, run.tokens]))")
    assert runs == [[[run["kind"], run["tokens"]] for run in rollout["runs"]] for rollout in rollouts]
    labels = browser.execute_script(
        f"return [...{COLUMNS}].map((a) => [...a.querySelectorAll('.run')].map((e) => e.innerText))"
    )
    for of_rollout, rollout in zip(labels, rollouts, strict=True):
        for label, run in zip(of_rollout, rollout["runs"], strict=True):
            told = re.search(r"A ([+\N{MINUS SIGN}]?\d\.\d\d)", label.splitlines()[0])
            assert (told is None) == (run["advantage"] is None)
            if told:
                assert float(told[1].replace("\N{MINUS SIGN}", "-")) == pytest.approx(run["advantage"], abs=0.0051)
    assert browser.get_log("browser") == []


def test_gold_calls_on_the_page_are_paired_as_the_run_scored_them(browser, finished):
    open_page(browser, finished.page)
    scored = browser.execute_script(
        "return index.groups.flatMap((g, i) => readData(`group-${i}`).rollouts.map((r) => r.goldAsScored))"
    )
    assert scored == [True] * len(finished.rollouts)


def test_the_curves_show_the_log_of_the_run(browser, finished, tmp_path):
    open_page(browser, finished.curves / "index.html")
    sizes = wait_for(browser, "return [...document.images].map((image) => image.naturalWidth)")
    names = {file.name for file in finished.curves.glob("*.png")}
    assert len(sizes) == len(names) and all(sizes)
    assert {
        "success_and_turns.png",
        "advantages.png",
        "process_terms.png",
        "validation.png",
        "optimisation.png",
    } <= names
    cells = browser.execute_script(
        "return [...document.querySelectorAll('tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    last = finished.log[2]
    shown = dict(zip(*cells, strict=True))
    assert shown["line"] == "slca-noise1" and shown["step"] == "2"
    assert shown["Success@0.9"] == f"{last['slca/success@0.9']:.3f}"
    assert shown["tool turns"] == f"{last['slca/tool_turns']:.3f}"
    browser.set_window_size(1280, 5000)
    assert browser.save_screenshot(str(tmp_path / "curves.png"))
    browser.set_window_size(1280, 900)
    assert browser.get_log("browser") == []
    assert loaded_files(browser) == []
