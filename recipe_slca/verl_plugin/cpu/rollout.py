"""Rollout backend `transformers`: for machines without a build of vLLM or SGLang.

A Ray actor holds the model and answers generation requests in batches; the training worker hands it the
weights after every step.
"""

import os
from collections.abc import Generator
from typing import Any

import ray
import torch
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

NAME = "transformers"


def _server_name(replica_rank: int) -> str:
    return f"slca_generation_server_{replica_rank}"


class TransformersReplica(RolloutReplica):
    """One generation server."""

    async def launch_servers(self) -> None:
        # Not at the top: the server's own process imports this module in the middle of importing that one.
        from recipe_slca.verl_plugin.cpu.generation_server import GenerationServer

        server = ray.remote(GenerationServer).options(
            name=_server_name(self.replica_rank), num_cpus=0, max_concurrency=self.max_concurrency
        )
        self._server_handle = server.remote(self.model_config.path, self.config)
        self._server_address = _server_name(self.replica_rank)
        self.servers = [self._server_handle]


class TransformersRollout(BaseRollout):
    """Lives in the training worker and sends its weights to the server."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._replica_rank = int(os.environ["RANK"]) // self.config.tensor_model_parallel_size
        self._server = None

    async def resume(self, tags: list[str]) -> None:
        pass  # the server keeps its weights

    async def release(self) -> None:
        pass

    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Raises `ValueError` for any but full named tensors."""
        if wire_format != "named_tensors":
            raise ValueError(f"rollout {NAME} takes full named tensors, not {wire_format!r}: use the naive engine")
        if self._server is None:
            self._server = ray.get_actor(_server_name(self._replica_rank))
        named = {name: tensor.detach().cpu().clone() for name, tensor in weights}
        await self._server.update_weights.remote(named, global_steps)


RolloutReplicaRegistry.register(NAME, lambda: TransformersReplica)
_ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.TransformersRollout"
