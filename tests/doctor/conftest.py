"""A run that could start: prepared data, a tiny model, and the arguments of the trainer."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ.setdefault("VERL_PLATFORM", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1]))


@dataclass
class World:
    """Where the data and the model are, and the arguments of a run on them."""

    data: Path
    model: Path
    output: Path

    @property
    def arguments(self) -> list[str]:
        return [
            f"data.train_files={self.data}/rl.parquet",
            f"data.val_files={self.data}/eval.parquet",
            "data.train_batch_size=8",
            "data.max_prompt_length=256",
            "data.max_response_length=256",
            f"actor_rollout_ref.model.path={self.model}",
            "actor_rollout_ref.actor.ppo_mini_batch_size=8",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
            "actor_rollout_ref.rollout.n=4",
            "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
            "++slca.limits.max_observation_tokens=100",
            f"trainer.default_local_dir={self.output}",
        ]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("doctor")

    def run(module: str, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", module, *arguments], check=True)

    run("data_prep.demo_world", "--output", f"{root}/rows.parquet", "--conversations", "120")
    build = ("data_prep.build", "--input", f"{root}/rows.parquet")
    run(*build, "--output", f"{root}/data", "--splits", "eval=8,rl=rest")
    run(*build, "--output", f"{root}/sft", "--splits", "sft=rest")
    run("data_prep.demo_model", "--sft", f"{root}/sft/sft.parquet", "--output", f"{root}/model")
    return World(root / "data", root / "model", root / "run")
