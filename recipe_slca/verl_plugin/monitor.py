"""One Ray actor that gathers what the run's workers know, for metrics, the rollout dump and the emergency stop.

The driver opens it (`tracking`), workers find it by name. Without it, as in a unit test of one loop, reports
go nowhere.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any

import ray
from ray.actor import ActorHandle

from recipe_slca.metrics import RolloutRecord
from recipe_slca.settings import SettingsError
from recipe_slca.sgls.health import SimulatorDown

ACTOR_NAME = "slca_monitor"
logger = logging.getLogger(__name__)


class RunMonitor:
    """Gathers the rollouts of the step under way; training and validation rollouts apart.

    max_dumped: how many rollouts of a phase may be dumped, in whole groups of `rollouts_per_group` in training and
    of `rollouts_per_validation_group` in validation.
    """

    def __init__(self, max_dumped: int, rollouts_per_group: int, rollouts_per_validation_group: int = 1):
        self._groups_dumped = {
            False: max(1, max_dumped // rollouts_per_group),
            True: max(1, max_dumped // rollouts_per_validation_group),
        }
        self._services: dict[tuple[str, str], dict[str, float]] = {}
        self._stop_reason: str | None = None
        self._failed_rollouts = 0
        self.open_phase(False)

    def open_phase(self, dump: bool, validate: bool = False) -> None:
        """Begin gathering anew; `dump` says whether rollouts of this phase are to be dumped."""
        self._records: list[RolloutRecord] = []
        self._dumped_groups: set[str] = set()
        self._most_groups = self._groups_dumped[validate] if dump else 0

    def add_rollout(self, record: RolloutRecord) -> bool:
        """Take a rollout's scores; returns whether its details are wanted for the dump."""
        self._records.append(record)
        if len(self._dumped_groups) < self._most_groups:
            self._dumped_groups.add(record.group)
        return record.group in self._dumped_groups

    def add_details(self, group: str, rollout: int, details: dict[str, Any]) -> None:
        """Take the dump fields of a rollout that `add_rollout` wanted."""
        for record in self._records:
            if (record.group, record.rollout) == (group, rollout):
                record.details = details

    def add_service(self, worker: str, service: str, metrics: Mapping[str, float]) -> None:
        """Take a worker's own counts of a service; the latest count."""
        self._services[worker, service] = dict(metrics)

    def add_failed_rollout(self, message: str, stop: bool) -> None:
        """Count a rollout that verl goes on without; `stop` ends the run at the next log."""
        self._failed_rollouts += 1
        if stop:
            self._stop_reason = self._stop_reason or message

    def take(self) -> tuple[list[RolloutRecord], dict[str, float], str | None]:
        """The phase's rollouts, service metrics, and why the run must stop (None: it need not)."""
        services = {"slca/failed_rollouts": float(self._failed_rollouts)}
        for (_worker, service), metrics in self._services.items():
            for name, value in metrics.items():
                key = name if name.startswith("slca/") else f"slca/{service}/{name}"
                # Latencies do not add up; the slowest worker is the one to look at.
                is_level = key.endswith(("_p50", "_p95", "_s", "_rate"))
                services[key] = max(services.get(key, 0.0), value) if is_level else services.get(key, 0.0) + value
        records = self._records
        self._records = []
        return records, services, self._stop_reason


def open_monitor(max_dumped: int, rollouts_per_group: int, rollouts_per_validation_group: int = 1) -> ActorHandle:
    """Start the run's `RunMonitor` beside the driver."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), False)
    actor = ray.remote(RunMonitor).options(name=ACTOR_NAME, num_cpus=0, scheduling_strategy=here)
    return actor.remote(max_dumped, rollouts_per_group, rollouts_per_validation_group)


_FATAL = (SimulatorDown, SettingsError)
_handle: ActorHandle | None = None


def _find() -> ActorHandle | None:
    global _handle
    if _handle is None and ray.is_initialized():
        try:
            _handle = ray.get_actor(ACTOR_NAME)
        except ValueError:
            return None
    return _handle


async def report_rollout(record: RolloutRecord) -> bool:
    """Tell the monitor of a scored rollout; returns whether it wants the details for the dump.

    Awaited, so that a step is only logged when all its rollouts have arrived.
    """
    monitor = _find()
    return bool(monitor) and await monitor.add_rollout.remote(record)


async def report_details(record: RolloutRecord, details: dict[str, Any]) -> None:
    """Send the dump fields of a rollout."""
    if monitor := _find():
        await monitor.add_details.remote(record.group, record.rollout, details)


async def report_service(service: str, metrics: Mapping[str, float]) -> None:
    """Send this process's counts of a service."""
    if metrics and (monitor := _find()):
        await monitor.add_service.remote(f"{ray.get_runtime_context().get_node_id()}:{os.getpid()}", service, metrics)


async def report_failed_rollout(group: Any, error: Exception) -> None:
    """Tell of a rollout that died. verl only logs that; what dooms all further rollouts must end the run."""
    message = f"rollout of group {group} failed: {type(error).__name__}: {error}"
    logger.error(message)
    if monitor := _find():
        await monitor.add_failed_rollout.remote(message, isinstance(error, _FATAL))
