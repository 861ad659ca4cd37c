"""Reward manager `hierr`: scores a rollout's `Trajectory` and tells the run's monitor.

The scalar that verl sees is the sum of both rewards; `segment_output` puts each on its own segment.
"""

from functools import cached_property
from typing import Any

from omegaconf import DictConfig
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.reward_manager.registry import register
from verl.protocol import DataProtoItem

from recipe_slca import task
from recipe_slca.hierr.hierr import HierR
from recipe_slca.hierr.summary import open_judge
from recipe_slca.metrics import TURN_REWARDS, RolloutRecord
from recipe_slca.settings import SettingsError, read_settings
from recipe_slca.trajectory import Trajectory
from recipe_slca.verl_plugin import monitor, rollout_dump
from recipe_slca.verl_plugin.cache_actor import shared_store
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
        self._settings = read_settings(plain(config.get("slca")))
        self._reward_model = reward_model_of_run(config, reward_router_address, reward_model_tokenizer)

    @cached_property
    def _judge(self) -> Any:
        # Not before the first rollout: the run's caches are opened after verl makes its reward managers.
        settings = self._settings.judge
        return open_judge(settings, self._reward_model, shared_store(settings.cache, "judge"))

    @cached_property
    def _hierr(self) -> HierR:
        return HierR(self._settings, self._judge)

    async def run_single(self, data: DataProto) -> dict[str, Any]:
        """Score the last row of `data`: both rewards and the metrics of HierR, all floats.

        Raises `SettingsError` when the rollout does not come from `slca_tool_agent`.
        """
        item = data[-1]
        try:
            return await self._score(item)
        except Exception as error:
            await monitor.report_failed_rollout(item.non_tensor_batch.get("uid"), error)
            raise

    async def _score(self, item: DataProtoItem) -> dict[str, Any]:
        row = item.non_tensor_batch
        extra_fields = row["tool_extra_fields"]
        if "trajectory" not in extra_fields:
            raise SettingsError(
                "reward manager hierr scores the trajectories of slca_tool_agent, and this rollout has none: set "
                "actor_rollout_ref.rollout.agent.default_agent_loop=slca_tool_agent, and check that the data has no "
                "column agent_name with another loop"
            )
        truth = task.ground_truth(row)
        trajectory = Trajectory.from_dict(extra_fields["trajectory"])
        score = await self._hierr.score(
            trajectory,
            truth["gold_tool_calls"],
            list(truth["allowed_tools"]),
            truth.get("tool_schemas"),
            task.recorded_calls(row),
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
            await monitor.report_details(record, rollout_dump.details(item, trajectory, self.tokenizer))
        await monitor.report_service("judge", self._judge.metrics())
        total = (score.tool_reward or 0.0) + (score.summary_reward or 0.0)
        return {"reward_score": total, "reward_extra_info": {**score.metrics, TURN_REWARDS: score.turn_rewards}}
