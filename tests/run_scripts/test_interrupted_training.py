"""Ctrl-C in the middle of a real training: all its processes end, and the same command goes on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from launching import HEARS_CTRL_C, SCRIPTS

# The launcher of one GPU, with what a CPU needs.
CPU = {
    "CONFIG_NAME": "slca_cpu",
    "ROLLOUT": "transformers",
    "LORA_RANK": "0",
    "RESPONDERS": "[replay,synthetic]",
    "JUDGE_KIND": "rule",
    "DOCTOR": "0",
    "BATCH": "4",
    "ROLLOUTS": "4",
    "MINI_BATCH": "4",
    "PROMPT_TOKENS": "256",
    "RESPONSE_TOKENS": "160",
    "OBSERVATION_TOKENS": "64",
    "EPOCHS": "100",
    "SAVE_FREQ": "1",
    "TEST_FREQ": "-1",
}
CPU_ARGUMENTS = [
    "actor_rollout_ref.model.use_remove_padding=false",
    "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    "actor_rollout_ref.actor.use_kl_loss=false",
    "actor_rollout_ref.actor.use_dynamic_bsz=false",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.actor.entropy_from_logits_with_chunking=false",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "trainer.val_before_train=false",
]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with data and a tiny model."""

    def run(module: str, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", module, *arguments], check=True, cwd=tmp_path)

    run("data_prep.demo_world", "--output", "rows.parquet", "--conversations", "60")
    run("data_prep.build", "--input", "rows.parquet", "--output", "data", "--splits", "eval=8,rl=rest")
    run("data_prep.build", "--input", "rows.parquet", "--output", "sft", "--splits", "sft=rest")
    run("data_prep.demo_model", "--sft", "sft/sft.parquet", "--output", "model")
    return tmp_path


@contextlib.contextmanager
def training(world: Path, output: Path, *arguments: str) -> Iterator[subprocess.Popen]:
    """The launcher as the leader of a process group, as a terminal starts it; whatever the test does, it ends."""
    environment = {
        **os.environ,
        **CPU,
        "VERL_PLATFORM": "cpu",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHON": sys.executable,
        "MODEL_PATH": f"{world}/model",
        "DATA_DIR": f"{world}/data",
        "RUN_DIR": f"{world}/run",
    }
    command = [*HEARS_CTRL_C, "bash", str(SCRIPTS / "run_qwen2.5_0.5b_1gpu.sh"), *CPU_ARGUMENTS, *arguments]
    with output.open("w") as file:
        launcher = subprocess.Popen(
            command, env=environment, cwd=world, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield launcher
    finally:
        launcher.terminate()
        launcher.wait(timeout=180)


def newest_checkpoint(world: Path) -> int:
    tracker = world / "run/latest_checkpointed_iteration.txt"
    return int(tracker.read_text() or 0) if tracker.exists() else 0


@pytest.mark.timeout(1200)
def test_ctrl_c_leaves_no_process_and_a_checkpoint_to_go_on_from(world):
    output = world / "output.log"
    with training(world, output, "trainer.total_training_steps=1000") as launcher:
        deadline = time.monotonic() + 600
        while newest_checkpoint(world) < 1:
            assert launcher.poll() is None and time.monotonic() < deadline, output.read_text()[-4000:]
            time.sleep(0.2)
        processes = psutil.Process(launcher.pid).children(recursive=True)
        assert any("raylet" in process.name() for process in processes)
        os.killpg(launcher.pid, signal.SIGINT)
        assert launcher.wait(timeout=180) != 0
        _gone, alive = psutil.wait_procs(processes, timeout=60)
        assert alive == []

    saved = newest_checkpoint(world)
    said = output.read_text().splitlines()[-1]
    assert f"the same command goes on from step {saved}" in said
    steps = [int(folder.name.removeprefix("global_step_")) for folder in world.glob("run/global_step_*[0-9]")]
    assert max(steps) == saved >= 1

    with training(world, output, f"trainer.total_training_steps={saved + 1}") as again:
        assert again.wait(timeout=600) == 0, output.read_text()[-4000:]
    assert f"Resuming from {world}/run/global_step_{saved}" in output.read_text()
    assert newest_checkpoint(world) == saved + 1
    logged = [json.loads(line)["step"] for line in (world / "run/log.jsonl").read_text().splitlines()]
    # The last saved step is logged after it is saved, so that Ctrl-C can come in between.
    assert {*range(1, saved), saved + 1} <= set(logged)
