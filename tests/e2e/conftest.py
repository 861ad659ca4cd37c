"""What the end-to-end tests share: a small study with its data and its warmed-up model, and the trainer."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CPU = {
    "VERL_PLATFORM": "cpu",
    "RAY_worker_niceness": "0",  # by default Ray's workers give way to everything else on the machine
    "TOKENIZERS_PARALLELISM": "false",
    "HYDRA_FULL_ERROR": "1",
    "PYTHONWARNINGS": "ignore",
}
SFT_STEPS = "150"
STUDY = Path(__file__).parents[2] / "run_scripts/study_slca_vs_grpo.sh"


def run(*arguments: str, log: Path, timeout: int = 900, **environment: str) -> str:
    """Run a command with verl on the CPU; returns its output. Fails the test with the end of the output."""
    with log.open("w") as file:
        process = subprocess.Popen(
            arguments,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **CPU, **environment},
            start_new_session=True,
        )
    try:
        status = process.wait(timeout)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left running would slow down all tests that follow
    output = log.read_text(errors="replace")
    assert status == 0, output[-6000:]
    return output


@dataclass
class Training:
    """One call of verl's PPO trainer, and what it left."""

    folder: Path
    output: str

    @property
    def log(self) -> dict[int, dict[str, float]]:
        """verl's file log: metrics by step."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return {entry["step"]: entry["data"] for entry in map(json.loads, lines)}

    def rollouts(self, name: str) -> list[dict]:
        """A file of the rollout dump."""
        return [json.loads(line) for line in (self.folder / "slca_rollouts" / name).read_text().splitlines()]


@dataclass
class World:
    """Prepared data and a warmed-up model."""

    data: Path
    model: Path

    def train(self, folder: Path, *overrides: str, **environment: str) -> Training:
        """Run verl's PPO trainer with 4 prompts x 4 rollouts a step; `overrides` are hydra arguments."""
        folder.mkdir(exist_ok=True)
        output = run(
            sys.executable,
            "-m",
            "verl.trainer.main_ppo",
            "--config-path=pkg://recipe_slca.config",
            "--config-name=slca_cpu",
            f"data.train_files={self.data}/rl.parquet",
            f"data.val_files={self.data}/eval.parquet",
            "data.val_max_samples=8",
            "data.train_batch_size=4",
            "data.max_prompt_length=256",
            "data.max_response_length=160",
            f"actor_rollout_ref.model.path={self.model}",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
            "actor_rollout_ref.actor.optim.lr=1e-4",
            "actor_rollout_ref.rollout.n=4",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
            "trainer.total_epochs=100",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "trainer.logger=[console,file]",
            f"trainer.default_local_dir={folder}",
            *overrides,
            log=folder / "output.log",
            VERL_FILE_LOGGER_PATH=str(folder / "metrics.jsonl"),
            **environment,
        )
        return Training(folder, output)


@pytest.fixture(scope="session")
def run_study():
    """Run the matched study in a folder with one seed, two estimators and two steps; returns its output."""

    def start(folder: Path) -> str:
        small = {"SEEDS": "1", "NOISES": "1", "ESTIMATORS": "grpo slca", "SFT_STEPS": SFT_STEPS, "RL_STEPS": "2"}
        return run(
            *("bash", str(STUDY), "data.val_max_samples=4", "data.max_response_length=96"),
            **{"log": folder / "output.log", "STUDY": str(folder), "VIRTUAL_ENV": sys.prefix, **small},
        )

    return start


@pytest.fixture(scope="session")
def study(tmp_path_factory, run_study) -> Path:
    """The folder of a finished small study."""
    folder = tmp_path_factory.mktemp("study")
    run_study(folder)
    return folder


@pytest.fixture(scope="session")
def world(study) -> World:
    """The small study's data, and the model that its runs start from."""
    return World(study / "start/data", study / f"start/sft/global_step_{SFT_STEPS}/huggingface")


@pytest.fixture(scope="session")
def grpo_run(study) -> Training:
    """The small study's run with verl's own estimator."""
    return Training(study / "runs/grpo-noise1-seed1", (study / "runs/grpo-noise1-seed1.log").read_text())
