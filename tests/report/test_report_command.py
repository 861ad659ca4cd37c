"""The command line of `recipe_slca.report`, as a user starts it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from make_dump import write_dump, write_log

ROOT = Path(__file__).parents[2]


def _report(*arguments, python=("-m", "recipe_slca.report")):
    return subprocess.run(
        [sys.executable, *python, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_trajectories_writes_a_page_and_says_what_is_on_it(tmp_path):
    write_dump(tmp_path / "run", groups=3, steps=1)
    with (tmp_path / "run" / "slca_rollouts" / "10.jsonl").open("a") as file:
        file.write("{half")
    page = tmp_path / "new folder" / "page.html"
    done = _report("trajectories", tmp_path / "run", "--output", page)
    assert (done.returncode, done.stdout) == (0, f"{page}: 48 rollouts in 3 groups\n")
    assert done.stderr.startswith("note: 1 line skipped: half a line")
    assert page.stat().st_size > 50_000
    assert [file.name for file in page.parent.iterdir()] == ["page.html"]


def test_curves_writes_a_folder(tmp_path):
    for seed in (1, 2):
        write_log(tmp_path / f"slca_seed{seed}" / "metrics.jsonl", seed, steps=4)
    output = tmp_path / "curves"
    done = _report("curves", tmp_path / "slca_seed1", tmp_path / "slca_seed2", "--output", output, "--smooth", 2)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{output / 'index.html'}: 2 runs\n", "")
    assert (output / "success_and_turns.png").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("trajectories", "nowhere", "--output", "page.html"), "has no folder slca_rollouts"),
        (("curves", "nowhere", "--output", "curves"), "no folder and no .jsonl file"),
        (("trajectories", "run", "--output", "page.html", "--steps", "a,b"), "not a list of steps such as 10,20"),
        (("trajectories", "run", "--output", "page.html", "--max-rollouts", "0"), "0 is not 1 or more"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line_without_a_traceback(arguments, message):
    done = _report(*arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named(tmp_path):
    write_log(tmp_path / "run.jsonl", 1, steps=2)
    code = (
        "import sys; sys.modules['matplotlib'] = None; from recipe_slca.report.__main__ import main; sys.exit(main())"
    )
    done = _report("curves", tmp_path, "--output", tmp_path / "curves", python=("-c", code))
    assert done.returncode == 1
    assert "pip install matplotlib" in done.stderr


def test_help_and_trajectories_need_no_heavy_package(tmp_path):
    write_dump(tmp_path, groups=1, steps=1)
    code = (
        "import atexit, sys; from recipe_slca.report.__main__ import main; "
        "heavy = ('torch', 'verl', 'ray', 'transformers', 'matplotlib'); "
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules])); main(sys.argv[1:])"
    )
    for arguments in (("--help",), ("trajectories", tmp_path, "--output", tmp_path / "page.html")):
        done = _report(*arguments, python=("-c", code))
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]"
