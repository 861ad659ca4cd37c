"""Advantage estimators for `algorithm.adv_estimator`: slca, slca_turn, toolpo and rltr.

verl hands an estimator the token rewards, the response mask, the group ids and the `algorithm` node. The
two segment rewards travel inside the token rewards (`segment_output`), so no other channel is needed.
"""

import logging
from functools import partial
from typing import Any

from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from recipe_slca import advantage
from recipe_slca.verl_plugin.run_config import ESTIMATORS, check_rollout_correction, estimator

logger = logging.getLogger(__name__)
_warned = False


def _estimate(
    name: str, token_level_rewards: Tensor, response_mask: Tensor, index: Any, config: Any, **_: Any
) -> tuple[Tensor, Tensor]:
    check_rollout_correction(config)
    advantages = estimator(name, config)(token_level_rewards, response_mask, index)
    _warn_without_tool_rewards(token_level_rewards, response_mask)
    return advantages, advantages


def _warn_without_tool_rewards(token_rewards: Tensor, mask: Tensor) -> None:
    global _warned
    if _warned:
        return
    tool, _summary = advantage.segment_rewards(token_rewards, mask)
    if bool(tool.graded.any()) and not bool(tool.reward.any()):
        _warned = True
        logger.warning(
            "No rollout of this batch has a reward in its tool segment, though tool segments exist. Most likely "
            "verl's own agent loop or reward manager is in use: set "
            "actor_rollout_ref.rollout.agent.default_agent_loop=slca_tool_agent and reward.reward_manager.name=hierr."
        )


for _name in ESTIMATORS:
    register_adv_est(_name)(partial(_estimate, _name))
