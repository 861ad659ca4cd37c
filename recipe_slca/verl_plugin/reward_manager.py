"""Reward manager `hierr`: scores a rollout's `Trajectory` and tells the run's monitor.

The scalar that verl sees is the sum of both rewards; `segment_output` puts each on its own segment.
"""

from typing import Any

from omegaconf import DictConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.reward_manager.registry import register

from recipe_slca import task
from recipe_slca.hierr.hierr import HierR
from recipe_slca.hierr.summary import open_judge
from recipe_slca.metrics import TURN_REWARDS, RolloutRecord
from recipe_slca.settings import read_settings
from recipe_slca.trajectory import Trajectory
from recipe_slca.verl_plugin import monitor, rollout_dump
from recipe_slca.verl_plugin.reward_model import reward_model_of_run
from recipe_slca.verl_plugin.run_config import plain


@register("hierr")
class HierrRewardManager(RewardManagerBase):
    """One object for each of verl's reward loop workers."""

    def __init__(
        self,
        config: DictConfig,
        tokenizer: Any,
        compute_score: Any,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ):
        super().__init__(config, tokenizer, compute_score)
        self.settings = read_settings(plain(config.get("slca")))
        reward_model = reward_model_of_run(config, reward_router_address, reward_model_tokenizer)
        self.judge = open_judge(self.settings.judge, reward_model)
        self.hierr = HierR(self.settings, self.judge)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last row of `data`: both rewards and the metrics of HierR, all floats.

        Raises `RuntimeError` when the rollout does not come from `slca_tool_agent`.
        """
        row = data[-1].non_tensor_batch
        extra_fields = row["tool_extra_fields"]
        if "trajectory" not in extra_fields:
            raise RuntimeError(
                "reward manager hierr scores the trajectories of slca_tool_agent, and this rollout has none: set "
                "actor_rollout_ref.rollout.agent.default_agent_loop=slca_tool_agent, and check that the data has no "
                "column agent_name with another loop"
            )
        truth = task.ground_truth(row)
        trajectory = Trajectory.from_dict(extra_fields["trajectory"])
        score = await self.hierr.score(
            trajectory, truth["gold_tool_calls"], list(truth["allowed_tools"]), truth.get("tool_schemas")
        )
        record = RolloutRecord(
            group=str(row["uid"]),
            rollout=int(row["session_id"]),
            tool_reward=score.tool_reward,
            summary_reward=score.summary_reward,
            turn_rewards=score.turn_rewards,
            scores=score.metrics,
        )
        if await monitor.report_rollout(record):
            details = rollout_dump.details(data[-1], trajectory, self.tokenizer)
            await monitor.report_details(record, details)
        await monitor.report_service("judge", self.judge.metrics())
        total = (score.tool_reward or 0.0) + (score.summary_reward or 0.0)
        return {"reward_score": total, "reward_extra_info": {**score.metrics, TURN_REWARDS: score.turn_rewards}}
