"""Runs the scripts, and composes what they ask verl for."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "run_scripts"
# Before a command that is to see Ctrl-C: tests that run in the background have inherited that it is ignored, and a
# shell cannot trap what was ignored when it started.
HEARS_CTRL_C = ("env", "--default-signal=INT")


def run_script(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """Run a script of run_scripts in a clean environment, with this Python unless told otherwise."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "VERL_PLATFORM") if name in os.environ}
    environment = {**kept, "PYTHON": sys.executable, **variables}
    command = ["bash", str(SCRIPTS / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def compose(arguments: list[str]):
    """The config of these arguments, with the module that they start: (module, config)."""
    import hydra

    module = arguments[arguments.index("-m") + 1]
    rest = [item for item in arguments[arguments.index(module) + 1 :] if item not in ("--cfg", "job", "--resolve")]
    options = dict(item.split("=", 1) for item in rest if item.startswith("--"))
    overrides = [item for item in rest if not item.startswith(("--", "hydra."))]
    path = options.get("--config-path", "pkg://verl.trainer.config").removeprefix("pkg://")
    with hydra.initialize_config_module(path, version_base=None):
        return module, hydra.compose(options.get("--config-name", "sft_trainer_engine"), overrides)
