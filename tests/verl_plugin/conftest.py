"""An agent loop made as verl makes it, with a policy that says what a test tells it to."""

import asyncio
import json
import os
from dataclasses import dataclass
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf
from scripted_policy import CALL, REPLY, WEATHER, ScriptedPolicy, make_row

from data_prep.demo_model import make_tokenizer
from recipe_slca import trajectory

os.environ.setdefault("VERL_PLATFORM", "cpu")


@dataclass
class Rollout:
    """A finished rollout: verl's output, the record of it, and what the policy was asked."""

    output: Any
    policy: ScriptedPolicy
    tokenizer: Any

    @property
    def trajectory(self) -> trajectory.Trajectory:
        return trajectory.Trajectory.from_dict(self.output.extra_fields["trajectory"])

    @property
    def text(self) -> str:
        return self.tokenizer.decode(self.output.prompt_ids + self.output.response_ids)


@pytest.fixture(scope="session")
def tokenizer():
    texts = [
        CALL,
        REPLY,
        json.dumps(WEATHER),
        "What is the weather in Oslo? system user assistant tool result id error",
    ]
    return make_tokenizer(texts * 4, [], 600)


@pytest.fixture(scope="session")
def base_config():
    with hydra.initialize_config_module("recipe_slca.config", version_base=None):
        config = hydra.compose("slca_cpu", ["actor_rollout_ref.model.path=none", "trainer.logger=[console]"])
    OmegaConf.set_struct(config, False)
    return config


@pytest.fixture
def roll_out(tokenizer, base_config):
    """roll_out(*turns, row=..., overrides=[...]) -> Rollout."""

    def start(*turns: str, row: dict | None = None, overrides: tuple[str, ...] = ()) -> Rollout:
        from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap, _agent_loop_registry
        from verl.utils.dataset.rl_dataset import RLHFDataset

        config = OmegaConf.merge(base_config, OmegaConf.from_dotlist(["data.max_response_length=600", *overrides]))
        config.actor_rollout_ref.rollout.response_length = config.data.max_response_length
        policy = ScriptedPolicy(tokenizer, list(turns))

        async def roll() -> Any:
            loop = hydra.utils.instantiate(
                config=_agent_loop_registry["slca_tool_agent"],
                trainer_config=DictConfigWrap(config=config),
                server_manager=policy,
                tokenizer=tokenizer,
                processor=None,
                hf_model_type="qwen2",
                dataset_cls=RLHFDataset,
                data_config=DictConfigWrap(config.data),
                tools=ToolListWrap([]),
            )
            sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}
            return await loop.run(sampling, **(row or make_row()))

        return Rollout(asyncio.run(roll()), policy, tokenizer)

    return start
