"""Packages and plugin: what is installed here, and what a Ray worker really has."""

import importlib
import importlib.metadata as metadata
import os
from collections.abc import Iterator
from typing import Any

from packaging.requirements import Requirement

from recipe_slca.doctor.checks import Outcome, Run, first_line

DISTRIBUTION = "recipe-slca"
PLUGIN_GROUP = "verl.plugins"
PLUGIN_MODULE = "recipe_slca.verl_plugin"
LOOP = "slca_tool_agent"
MANAGER = "hierr"
PARSER = "toucan"
WORKER_S = 90
_INSTALL = "install the project again in this environment: pip install -e '.[vllm]' (without a GPU: '.[cpu]')"


def check_versions(run: Run) -> Outcome:
    """The installed packages against the requirements of this project, those of the rollout backend included."""
    name = "versions"
    extra = "vllm" if run.config.actor_rollout_ref.rollout.name == "vllm" else "cpu"
    try:
        requirements = list(_requirements(DISTRIBUTION, {extra}))
    except metadata.PackageNotFoundError:
        return Outcome(name, False, f"{DISTRIBUTION} is not installed", _INSTALL)
    wrong, pins = [], []
    for requirement in requirements:
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} is {found}, needed is {requirement.specifier}")
        elif str(requirement.specifier).startswith("=="):
            pins.append(f"{requirement.name} {found}")
    if wrong:
        return Outcome(name, False, "; ".join(wrong), _INSTALL)
    return Outcome(name, True, ", ".join(dict.fromkeys(pins)))


def _requirements(distribution: str, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution with these extras needs; the extras of a requirement are followed (verl[vllm])."""
    for text in metadata.requires(distribution) or []:
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in extras | {""}]
        if requirement.marker and not any(requirement.marker.evaluate(environment) for environment in environments):
            continue
        yield requirement
        if requirement.extras:
            inner = {extra: list(_requirements(requirement.name, {extra})) for extra in requirement.extras}
            base = {str(item) for item in _requirements(requirement.name, set())}
            yield from (item for items in inner.values() for item in items if str(item) not in base)


def check_plugin() -> Outcome:
    """Whether verl will load the plugin, and the error that verl would keep to itself."""
    name = "plugin"
    policy = os.getenv("VERL_USE_EXTERNAL_PLUGINS", "auto").strip().lower()
    points = [point for point in metadata.entry_points(group=PLUGIN_GROUP) if point.value == PLUGIN_MODULE]
    external = [module.strip() for module in os.getenv("VERL_USE_EXTERNAL_MODULES", "").split(",")]
    if PLUGIN_MODULE not in external:
        if not points:
            return Outcome(name, False, f"no entry point of {PLUGIN_GROUP} names {PLUGIN_MODULE}", _INSTALL)
        if policy != "auto" and points[0].name not in policy.split(","):
            remedy = f"unset it, or add {points[0].name} to it"
            return Outcome(name, False, f"VERL_USE_EXTERNAL_PLUGINS={policy} keeps verl from loading it", remedy)
    try:
        importlib.import_module(PLUGIN_MODULE)
    except Exception as error:
        remedy = f"verl hides this error; repair it: python -c 'import {PLUGIN_MODULE}'"
        return Outcome(name, False, f"it cannot be imported: {first_line(error)}", remedy)
    return Outcome(name, True, f"{PLUGIN_MODULE} by {'VERL_USE_EXTERNAL_MODULES' if not points else 'entry point'}")


def registered() -> dict[str, Any]:
    """What verl knows in this process: names by registry, or the import error that came instead."""
    try:
        import verl
        from verl.experimental.agent_loop import agent_loop, tool_agent_loop, tool_parser  # noqa: F401
        from verl.experimental.reward_loop.reward_manager import registry
        from verl.trainer.ppo import core_algos

        return {
            "version": verl.__version__,
            "estimator": sorted(map(str, core_algos.ADV_ESTIMATOR_REGISTRY)),
            "agent loop": sorted(agent_loop._agent_loop_registry),
            "reward manager": sorted(registry.REWARD_MANAGER),
            "tool parser": sorted(tool_parser.ToolParser._registry),
        }
    except Exception as error:
        return {"error": first_line(error)}


def check_ray_workers(run: Run) -> Iterator[Outcome]:
    """Start Ray (or join the cluster) as the run will, and ask a worker on every node what verl knows there."""
    import ray

    name = "Ray workers"
    ray_init = _ray_init(run)
    try:
        if not ray.is_initialized():
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
    return OmegaConf.to_container(OmegaConf.create({**node, "runtime_env": runtime_env}), resolve=True)


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
    wanted["estimator"] = str(run.config.algorithm.adv_estimator)
    for address, reference in pending.items():
        try:
            known = ray.get(reference, timeout=WORKER_S)
        except ray.exceptions.GetTimeoutError:
            remedy = "free the node of other work, or see its log under /tmp/ray/session_latest/logs"
            return Outcome(name, False, f"node {address}: no worker within {WORKER_S} s", remedy)
        except Exception as error:
            return Outcome(name, False, f"node {address}: {first_line(error)}", _INSTALL)
        if "error" in known:
            return Outcome(name, False, f"node {address}: verl cannot be imported: {known['error']}", _INSTALL)
        missing = [f"{kind} {value}" for kind, value in wanted.items() if value not in known[kind]]
        if missing:
            remedy = f"{_INSTALL}, on every node; if the estimator is misspelt, correct algorithm.adv_estimator"
            return Outcome(name, False, f"node {address} does not know {', '.join(missing)}", remedy)
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
