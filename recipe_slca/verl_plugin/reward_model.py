"""verl's own reward model as the judge of HierR."""

from typing import Any

from omegaconf import DictConfig

from recipe_slca.hierr.reward_model_judge import RewardModel
from recipe_slca.settings import SettingsError


def compute_score(*_: Any, **__: Any) -> float:
    """Stands in `reward.custom_reward_function`, and is never called.

    With a reward model and no custom reward function verl scores by itself and asks no reward manager; with
    this one named there, it asks `hierr`, which asks the reward model.
    """
    raise NotImplementedError("set reward.reward_manager.name=hierr, which scores without this function")


def reward_model_of_run(config: DictConfig, router_address: str | None, tokenizer: Any) -> RewardModel | None:
    """The reward model that verl serves in this run; None when it serves none.

    Raises `SettingsError` when verl would not let the reward manager score.
    """
    settings = config.reward.reward_model
    if not settings.enable:
        return None
    if config.reward.custom_reward_function.path is None:
        raise SettingsError(
            "reward.reward_model.enable=true without reward.custom_reward_function: verl then scores by itself and "
            "never asks hierr; set reward.custom_reward_function.path=pkg://recipe_slca.verl_plugin.reward_model and "
            "reward.custom_reward_function.name=compute_score"
        )
    if not settings.enable_resource_pool:
        raise SettingsError(
            "reward.reward_model.enable_resource_pool=false scores after all rollouts, when only one scalar is taken "
            "from a reward manager; give the reward model its own resource pool"
        )

    def render(messages: list[dict[str, str]]) -> str:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)

    return RewardModel(router_address, settings.model_path, settings.rollout.name, render)
