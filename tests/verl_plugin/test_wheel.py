"""The package as a user installs it: a wheel, used from another folder."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).parents[2]


def test_wheel_has_the_configs_and_composes_them_from_another_folder(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", str(CHECKOUT), "--no-deps", "--wheel-dir", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", str(wheel), "--no-deps", "--target", str(installed)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONWARNINGS": "ignore"}
    where = subprocess.run(
        [sys.executable, "-c", "import recipe_slca.report, data_prep; print(recipe_slca.__file__)"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert where.stdout.strip() == str(installed / "recipe_slca" / "__init__.py")
    for name in ("slca_trainer", "slca_cpu"):
        command = ["-m", "verl.trainer.main_ppo", "--config-path=pkg://recipe_slca.config", f"--config-name={name}"]
        outcome = subprocess.run(
            [sys.executable, *command, "--cfg", "job"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        config = yaml.safe_load(outcome.stdout[outcome.stdout.index("actor_rollout_ref:") :])
        assert config["algorithm"]["adv_estimator"] == "slca"
        assert config["actor_rollout_ref"]["rollout"]["agent"]["default_agent_loop"] == "slca_tool_agent"
        assert config["reward"]["reward_manager"]["name"] == "hierr"
    assert {path.name for path in (installed / "recipe_slca" / "report").iterdir()} >= {
        "page.html",
        "page.js",
        "page.css",
    }
