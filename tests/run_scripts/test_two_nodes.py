"""One training step across two Ray nodes on one machine. Takes minutes: SLCA_TWO_NODES=1 runs it."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not os.environ.get("SLCA_TWO_NODES"), reason="two Ray nodes and a training step take minutes: SLCA_TWO_NODES=1"
)
NODE = [
    "--num-cpus=12",
    "--num-gpus=1",
    "--object-store-memory=200000000",
    "--disable-usage-stats",
    "--min-worker-port=0",
    "--max-worker-port=0",
    "--block",
]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path_factory):
    """Two nodes with one "GPU" each; yields the environment of a process that joins them."""
    import ray

    # Ray's socket paths must be short.
    folder = Path(f"/tmp/slca-{secrets.token_hex(4)}")
    folder.mkdir()
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    address = f"{ray.util.get_node_ip_address()}:{free_port()}"
    command = [str(Path(sys.executable).with_name("ray")), "start"]
    head = [f"--port={address.rpartition(':')[2]}", f"--ray-client-server-port={free_port()}", f"--temp-dir={folder}"]
    starts = [
        [*command, "--head", "--include-dashboard=false", *head, *NODE],
        [*command, f"--address={address}", *NODE],
    ]
    processes = []
    try:
        for number, start in enumerate(starts):
            log = folder / f"node{number}.log"
            with log.open("w") as file:
                processes.append(subprocess.Popen(start, stdout=file, stderr=file, env=environment, cwd=folder))
            deadline = time.monotonic() + 120
            while "Ray runtime started" not in log.read_text():
                assert processes[-1].poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.5)
        yield environment | {"RAY_ADDRESS": address}
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.timeout(1200)
def test_a_step_across_two_nodes(cluster, tmp_path):
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments], env=cluster, cwd=tmp_path, capture_output=True, text=True, timeout=1000
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    run("data_prep.demo_world", "--output", "rows.parquet", "--conversations", "60")
    run("data_prep.build", "--input", "rows.parquet", "--output", "data", "--splits", "eval=8,rl=rest")
    run("data_prep.build", "--input", "rows.parquet", "--output", "sft", "--splits", "sft=rest")
    run("data_prep.demo_model", "--sft", "sft/sft.parquet", "--output", "model")
    arguments = [
        "--config-path=pkg://recipe_slca.config",
        "--config-name=slca_cpu",
        f"data.train_files={tmp_path}/data/rl.parquet",
        f"data.val_files={tmp_path}/data/eval.parquet",
        "data.train_batch_size=4",
        "data.max_prompt_length=256",
        "data.max_response_length=160",
        f"actor_rollout_ref.model.path={tmp_path}/model",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "++slca.limits.max_observation_tokens=64",
        f"trainer.default_local_dir={tmp_path}/run",
        "trainer.nnodes=2",
        "trainer.total_training_steps=1",
        "trainer.val_before_train=False",
        "trainer.logger=[console,file]",
        # The cluster is up: what it has is not for a driver to say.
        "ray_kwargs.ray_init.num_cpus=null",
        "~ray_kwargs.ray_init.num_gpus",
        f"+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH={tmp_path}/log.jsonl",
    ]
    assert "2 nodes know slca_tool_agent" in run("recipe_slca.doctor", *arguments)
    run("verl.trainer.main_ppo", *arguments)
    (step,) = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert step["step"] == 1
    assert step["data"]["slca/rollouts"] == 16
