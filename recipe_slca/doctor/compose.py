"""Composes the run's config from the arguments of `python -m verl.trainer.main_ppo`."""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

DEFAULT_PATH = "pkg://recipe_slca.config"
DEFAULT_NAME = "slca_trainer"


class ConfigUnusable(ValueError):
    """The arguments do not make a config; the message is hydra's own."""


def compose(config_path: str, config_name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose as hydra does for the trainer. Raises `ConfigUnusable`.

    config_path: pkg://MODULE or a folder. Overrides of hydra itself, such as hydra.run.dir, change nothing of
    the config and are left out.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    own = [override for override in overrides if not override.lstrip("+~").startswith("hydra.")]
    GlobalHydra.instance().clear()
    try:
        if config_path.startswith("pkg://"):
            importlib.import_module(config_path.removeprefix("pkg://"))
            context = hydra.initialize_config_module(config_path.removeprefix("pkg://"), version_base=None)
        else:
            context = hydra.initialize_config_dir(str(Path(config_path).resolve()), version_base=None)
        with context:
            config = hydra.compose(config_name, own)
        OmegaConf.to_container(config, resolve=True)
    except Exception as error:  # hydra and OmegaConf have no common base for what a user can get wrong
        raise ConfigUnusable(str(error)) from error
    return config


def argument_parser() -> argparse.ArgumentParser:
    """The command line: hydra's own arguments, and `--wait`."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe_slca.doctor",
        description="Check everything that keeps a run from starting, without starting it. Takes the arguments of "
        "python -m verl.trainer.main_ppo.",
    )
    parser.add_argument("--config-path", "-cp", default=DEFAULT_PATH, help="default: %(default)s")
    parser.add_argument("--config-name", "-cn", default=DEFAULT_NAME, help="default: %(default)s")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait up to this long for the simulator and the judge to answer (default: ask once)",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="hydra overrides")
    return parser
