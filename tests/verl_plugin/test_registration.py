"""The plugin as verl finds it: by its entry point alone, also inside a Ray worker."""

import os
import subprocess
import sys

REGISTERED = """
import ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

@ray.remote
def look():
    import sys
    import verl
    before = sorted(name for name in sys.modules if name.startswith("recipe_slca"))
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.agent_loop.tool_parser import ToolParser
    import verl.experimental.agent_loop
    return (
        before,
        [bool(get_adv_estimator_fn(name)) for name in ("slca", "slca_turn", "toolpo", "rltr")],
        get_reward_manager_cls("hierr").__name__,
        _agent_loop_registry["slca_tool_agent"]["_target_"],
        ToolParser._registry["toucan"].__name__,
        sorted(name for name in sys.modules if name.split(".")[0] in ("vllm", "sglang")),
    )

print(ray.get(look.remote()))
"""


def test_everything_is_registered_in_a_ray_worker_from_the_entry_point_alone(tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("VERL_")}
    environment |= {"PYTHONWARNINGS": "ignore"}
    # Another folder, so that nothing is found but what is installed.
    outcome = subprocess.run(
        [sys.executable, "-c", REGISTERED], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    assert outcome.stdout.strip().splitlines()[-1] == str(
        (
            ["recipe_slca", "recipe_slca.verl_plugin"],
            [True] * 4,
            "HierrRewardManager",
            "recipe_slca.verl_plugin.agent_loop.SlcaToolAgentLoop",
            "ToucanToolParser",
            [],
        )
    )
