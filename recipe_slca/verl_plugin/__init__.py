"""The verl plugin: what `import verl` loads through the entry point group `verl.plugins`.

Nothing of verl is imported here. Each adapter registers itself right after verl imports the module that
holds the registry, so `import verl` stays fast and every process (driver, Ray worker, rollout server) gets
exactly what it uses.

Adapters import each other as modules (`from recipe_slca.verl_plugin import tool_parser`), never names from
them: whichever is imported first, verl's import in its first lines brings in the others half-way.
"""

import importlib
import os

import wrapt

_ADAPTERS = {
    "verl.trainer.ppo.core_algos": "estimators",
    "verl.experimental.agent_loop.tool_parser": "tool_parser",
    "verl.experimental.agent_loop.tool_agent_loop": "agent_loop",
    "verl.experimental.reward_loop.reward_manager.registry": "reward_manager",
    "verl.utils.tracking": "tracking",
    "verl.trainer.ppo.v1.trainer_base": "validation",
}
_CPU_ADAPTERS = {
    "verl.plugin.platform.platform_manager": "cpu.platform",
    "verl.workers.engine.fsdp.transformer_impl": "cpu.engine",
    "verl.utils.distributed": "cpu.process_group",
    "verl.workers.rollout.replica": "cpu.rollout",
}


def _register_after(verl_module: str, adapter: str) -> None:
    def import_adapter(_module: object) -> None:
        importlib.import_module(f"{__name__}.{adapter}")

    wrapt.register_post_import_hook(import_adapter, verl_module)


for _verl_module, _adapter in _ADAPTERS.items():
    _register_after(_verl_module, _adapter)
if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    for _verl_module, _adapter in _CPU_ADAPTERS.items():
        _register_after(_verl_module, _adapter)
