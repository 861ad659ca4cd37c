"""Ray: whether it starts, what a worker on every node knows, and whether its resources suffice."""

import os
import threading
from collections.abc import Iterator
from typing import Any

from recipe_slca.doctor.checks import Outcome, Run, first_line
from recipe_slca.doctor.environment import INSTALL

LOOP = "slca_tool_agent"
MANAGER = "hierr"
PARSER = "toucan"
WORKER_S = 240
"""Long, since a first import of torch from a network disk, or on a busy machine, takes minutes."""
SAY_AFTER_S = 20


def known_estimators() -> list[str]:
    """The estimators that verl knows in this process."""
    from verl.trainer.ppo import core_algos

    return sorted({str(getattr(name, "value", name)) for name in core_algos.ADV_ESTIMATOR_REGISTRY})


def registered() -> dict[str, Any]:
    """What verl knows in this process: names by registry, or the import error that came instead."""
    try:
        import verl
        from verl.experimental.agent_loop import agent_loop, tool_agent_loop, tool_parser  # noqa: F401
        from verl.experimental.reward_loop.reward_manager import registry

        return {
            "version": verl.__version__,
            "estimator": known_estimators(),
            "agent loop": sorted(agent_loop._agent_loop_registry),
            "reward manager": sorted(registry.REWARD_MANAGER),
            "tool parser": sorted(tool_parser.ToolParser._registry),
        }
    except Exception as error:
        return {"error": first_line(error)}


class RayCheck:
    """Starts Ray (or joins the cluster) as the run will, and asks a worker on every node what verl knows there.

    It takes seconds, so it goes on beside other checks from the start; nobody waits for it after Ctrl-C.
    """

    def __init__(self, run: Run):
        self._run = run
        self._ray_init = _ray_init(run)
        self._outcomes: list[Outcome] = []
        self._thread = threading.Thread(target=self._check, daemon=True)
        self._thread.start()

    def outcomes(self) -> list[Outcome]:
        """Wait until it is done and Ray is gone again."""
        self._thread.join(timeout=SAY_AFTER_S)
        if self._thread.is_alive():
            print(f"waiting for Ray and its workers, up to {WORKER_S} s", flush=True)
            self._thread.join()
        return self._outcomes

    def _check(self) -> None:
        try:
            self._outcomes.extend(_check_workers(self._run, self._ray_init))
        except Exception as error:
            found = f"the check broke off: {first_line(error)}"
            self._outcomes.append(Outcome("Ray workers", False, found, "see Ray's logs under /tmp/ray/session_latest"))


def _check_workers(run: Run, ray_init: dict[str, Any]) -> Iterator[Outcome]:
    import ray

    name = "Ray workers"
    # Ray's workers give way to every other process of the machine, and this one is being waited for.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        ray.init(**ray_init, log_to_driver=False, logging_level="error")
    except Exception as error:
        remedy = "with a cluster (RAY_ADDRESS, ray start) leave out ray_kwargs.ray_init.num_cpus and num_gpus"
        yield Outcome(name, False, f"Ray does not start: {first_line(error)}", remedy)
        return
    try:
        yield _ask_workers(run, name)
        yield _check_resources(run, ray.cluster_resources())
    finally:
        ray.shutdown()


def _ray_init(run: Run) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    node = run.config.ray_kwargs.get("ray_init", {})
    runtime_env = OmegaConf.merge(get_ppo_ray_runtime_env(run.config), node.get("runtime_env") or {})
    # The dashboard costs seconds, and nothing here looks at it.
    own = {"include_dashboard": False, "runtime_env": runtime_env}
    return OmegaConf.to_container(OmegaConf.create({**node, **own}), resolve=True)


def _ask_workers(run: Run, name: str) -> Outcome:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(registered)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    pending = {
        node["NodeManagerAddress"]: ask.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in nodes
    }
    wanted = {"agent loop": LOOP, "reward manager": MANAGER, "tool parser": PARSER}
    # An estimator that is not known here either is a finding of `check_estimator`.
    if (estimator := str(run.config.algorithm.adv_estimator)) in known_estimators():
        wanted["estimator"] = estimator
    for address, reference in pending.items():
        try:
            known = ray.get(reference, timeout=WORKER_S)
        except ray.exceptions.GetTimeoutError:
            remedy = "free the node of other work, or see its log under /tmp/ray/session_latest/logs"
            return Outcome(name, False, f"node {address}: no worker within {WORKER_S} s", remedy)
        except Exception as error:
            return Outcome(name, False, f"node {address}: {first_line(error)}", INSTALL)
        if "error" in known:
            return Outcome(name, False, f"node {address}: verl cannot be imported: {known['error']}", INSTALL)
        missing = [f"{kind} {value}" for kind, value in wanted.items() if value not in known[kind]]
        if missing:
            return Outcome(
                name, False, f"node {address} does not know {', '.join(missing)}", f"{INSTALL}, on every node"
            )
    nodes_text = "node knows" if len(nodes) == 1 else "nodes know"
    return Outcome(name, True, f"{len(nodes)} {nodes_text} {', '.join(wanted.values())}")


def _check_resources(run: Run, resources: dict[str, float]) -> Outcome:
    """verl waits for ever, without a word, for CPUs that Ray does not have."""
    name = "Ray resources"
    trainer = run.config.trainer
    gpus = trainer.n_gpus_per_node * trainer.nnodes
    # Each GPU's bundle asks for three CPUs; the controller of TransferQueue and its storage units for one each.
    cpus = 3 * gpus + run.config.transfer_queue.backend.SimpleStorage.num_data_storage_units + 2
    found = f"{resources.get('GPU', 0):g} GPUs and {resources.get('CPU', 0):g} CPUs, needed are {gpus} and {cpus}"
    if resources.get("GPU", 0) < gpus:
        return Outcome(
            name,
            False,
            found,
            "lower trainer.n_gpus_per_node or trainer.nnodes, or start Ray on more nodes (ray start)",
        )
    if resources.get("CPU", 0) < cpus:
        return Outcome(
            name,
            False,
            found,
            f"set ray_kwargs.ray_init.num_cpus={cpus} (Ray only counts), and "
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        )
    return Outcome(name, True, found)
