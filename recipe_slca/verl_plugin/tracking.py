"""Brings the run's own metrics into verl's logger, and stops a run that cannot go on.

verl's V1 trainer logs reward details in validation only. These wrappers around `Tracking` check the settings
when a run with reward manager `hierr` opens its logger, open the run's monitor, and add to every step's log
what the monitor gathered. Any other run passes through untouched.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import wrapt
from ray.actor import ActorHandle
from verl.utils.tracking import Tracking

from recipe_slca.hierr.summary import open_judge
from recipe_slca.metrics import RolloutRecord, step_metrics
from recipe_slca.settings import Settings, read_settings
from recipe_slca.sgls import Simulator
from recipe_slca.sgls.store import MemoryStore
from recipe_slca.verl_plugin import rollout_dump
from recipe_slca.verl_plugin.cache_actor import open_cache
from recipe_slca.verl_plugin.monitor import open_monitor
from recipe_slca.verl_plugin.run_config import check_rollout_correction, estimator

logger = logging.getLogger(__name__)


class RunLog:
    """The driver's side of the monitor: one object a run.

    Raises `SettingsError` for settings that cannot be used.
    """

    def __init__(self, config: Mapping[str, Any]):
        algorithm = config["algorithm"]
        self._settings = read_settings(config.get("slca"))
        self._estimator = str(algorithm["adv_estimator"])
        self._estimate = estimator(self._estimator, algorithm)
        check_rollout_correction(algorithm)
        if algorithm.get("use_kl_in_reward"):
            logger.warning(
                "algorithm.use_kl_in_reward=true: a KL term on the last token of an ungraded segment makes it look "
                "graded with reward 0; use actor_rollout_ref.actor.use_kl_loss instead"
            )
        self._caches = open_services(self._settings)
        rollout = config["actor_rollout_ref"]["rollout"]
        self._folder = Path(config["trainer"]["default_local_dir"]) / rollout_dump.FOLDER
        self._monitor = open_monitor(self._settings.dump.max_rollouts, rollout["n"], rollout["val_kwargs"]["n"])
        self._training: list[RolloutRecord] = []
        self._validation: list[RolloutRecord] = []
        self._open_phase(self._settings.dump.every > 0)

    def begin_validation(self) -> None:
        """What is gathered so far was training; what comes until `end_validation` is validation."""
        self._training += self._take()[0]
        self._open_phase(self._settings.dump.every > 0, validate=True)

    def end_validation(self) -> None:
        self._validation += self._take()[0]
        self._open_phase(False)

    def step(self, step: int) -> dict[str, float]:
        """The metrics of a finished step, and its dump. Raises `RuntimeError` when the run must stop."""
        records, metrics, stop_reason = self._take()
        if stop_reason:
            raise RuntimeError(f"the run stops after step {step}: {stop_reason}")
        training, validation = self._training + records, self._validation
        metrics |= step_metrics(training, self._estimate)
        metrics |= {name.replace("slca/", "slca/val/", 1): value for name, value in step_metrics(validation).items()}
        self._dump(f"{step}.jsonl", training, step, validate=False)
        self._dump(f"val_{step}.jsonl", validation, step, validate=True)
        self._training, self._validation = [], []
        every = self._settings.dump.every
        self._open_phase(every > 0 and (step + 1) % every == 0)
        return metrics

    def _take(self) -> tuple[list[RolloutRecord], dict[str, float], str | None]:
        return ray.get(self._monitor.take.remote())

    def _open_phase(self, dump: bool, validate: bool = False) -> None:
        ray.get(self._monitor.open_phase.remote(dump, validate))

    def _dump(self, name: str, records: list[RolloutRecord], step: int, validate: bool) -> None:
        if any(record.details for record in records):
            shared = {"step": step, "validate": validate, "estimator": self._estimator}
            rollout_dump.write(self._folder / name, records, shared, None if validate else self._estimate)


def open_services(settings: Settings) -> list[ActorHandle]:
    """Check that simulator and judge can be used as configured, and open the caches that they share.

    The caches live as long as the handles. Raises `SettingsError` and `CacheUnusable`.
    """
    caches = []
    if "llm" in settings.simulator.responders:
        Simulator(settings.simulator, MemoryStore())
        caches.append(open_cache(settings.simulator.cache, "simulator"))
    if settings.judge.kind == "llm":
        open_judge(settings.judge, store=MemoryStore())
    if settings.judge.kind != "rule":
        caches.append(open_cache(settings.judge.cache, "judge"))
    return caches


run_log: RunLog | None = None


def _open(wrapped, instance, args, kwargs):
    wrapped(*args, **kwargs)
    global run_log
    config = kwargs.get("config") or {}
    manager = config.get("reward", {}).get("reward_manager", {}).get("name")
    if manager == "hierr" and ray.is_initialized():
        run_log = RunLog(config)


def _log(wrapped, instance, args, kwargs):
    if run_log is not None and "data" in kwargs and "backend" not in kwargs:
        kwargs["data"] = {**kwargs["data"], **run_log.step(kwargs["step"])}
    return wrapped(*args, **kwargs)


wrapt.wrap_function_wrapper(Tracking, "__init__", _open)
wrapt.wrap_function_wrapper(Tracking, "log", _log)
