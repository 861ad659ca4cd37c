"""How a run ends: signals reach it, nothing is left running, no half-written checkpoint keeps its name."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import HEARS_CTRL_C, SCRIPTS

# A run that saves one whole checkpoint, begins another, has a server, and waits.
TRAINER = """
import pathlib, subprocess, sys, time
run = pathlib.Path(sys.argv[1])
(run / "global_step_1").mkdir()
(run / "latest_checkpointed_iteration.txt").write_text("1")
(run / "global_step_2").mkdir()
(run / "log.jsonl").write_text('{"step": 2}\\n')
server = subprocess.Popen(["sleep", "300"])
(run / "server.pid").write_text(str(server.pid))
(run / "ready").touch()
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


def start(run_dir: Path, seconds: str, status: str) -> subprocess.Popen:
    run_dir.mkdir(exist_ok=True)
    (run_dir / "trainer.py").write_text(TRAINER)
    script = (
        f"set -euo pipefail; RUN_DIR={run_dir}; source {SCRIPTS}/common.sh; "
        f"put_in_order; run_to_end {sys.executable} {run_dir}/trainer.py {run_dir} {seconds} {status}"
    )
    command = [*HEARS_CTRL_C, "bash", "-c", script]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_all_its_processes(tmp_path, number):
    run = tmp_path / "run"
    process = start(run, "300", "0")
    wait_for(run / "ready")
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert not is_running(int((run / "server.pid").read_text()))
    assert "the same command goes on from step 1" in said
    assert (run / "global_step_1").is_dir() and (run / "global_step_2.unfinished").is_dir()
    assert not (run / "global_step_2").exists()


def test_a_failed_run_keeps_its_status_and_its_whole_log(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "log.jsonl").write_text('{"step": 1}\n')
    process = start(run, "0", "3")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3 and "ended with status 3" in said
    assert (run / "log.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'
    assert not (run / "log.earlier").exists()


def test_what_a_killed_start_left_is_put_in_order(tmp_path):
    """Its launcher was killed too: the log of the start before, and a checkpoint that was cut off."""
    run = tmp_path / "run"
    (run / "global_step_0").mkdir(parents=True)
    (run / "log.earlier").write_text('{"step": 0}\n')
    (run / "log.jsonl").write_text('{"step": 1}\n')
    process = start(run, "0", "0")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "the checkpoint of step 0 was not completed" in said and (run / "global_step_0.unfinished").is_dir()
    assert (run / "log.jsonl").read_text() == '{"step": 0}\n{"step": 1}\n{"step": 2}\n'
    assert not (run / "log.earlier").exists()


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_tracker_names_the_newest_whole_checkpoint_again(tmp_path, whole):
    """verl leaves it empty when the disk is full at that moment, and does not start with it."""
    run = tmp_path / "run"
    for step in (9, 10):
        (run / f"global_step_{step}").mkdir(parents=True)
    if whole:
        (run / "global_step_9/data.pt").touch()
    (run / "latest_checkpointed_iteration.txt").touch()
    script = f"set -euo pipefail; RUN_DIR={run}; source {SCRIPTS}/common.sh; put_in_order; run_to_end true"
    done = subprocess.run(["bash", "-c", script], stderr=subprocess.PIPE, text=True, timeout=60)
    if whole:
        assert done.returncode == 0, done.stderr
        assert (run / "latest_checkpointed_iteration.txt").read_text().strip() == "9"
        assert (run / "global_step_9").is_dir() and (run / "global_step_10.unfinished").is_dir()
    else:
        assert done.returncode == 1 and "is empty and no checkpoint is whole" in done.stderr


def test_a_run_that_succeeds_says_nothing(tmp_path):
    run = tmp_path / "run"
    process = start(run, "0", "0")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0 and "ended with status" not in said
    assert not is_running(int((run / "server.pid").read_text()))


def test_a_full_disk_is_named(tmp_path):
    """On a file system of one megabyte, where this may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        process = start(disk / "run", "0", "1")
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1 and "less than 1 GiB is left" in said and "KEEP_CHECKPOINTS" in said
        assert (disk / "run/global_step_2.unfinished").is_dir()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
