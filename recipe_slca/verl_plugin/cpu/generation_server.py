"""Token-in, token-out generation with a transformers model, in batches.

Requests that wait together start together, and join those that are under way after their first step, up to
max_num_seqs. What cannot join takes its steps in turn, so that one long generation holds up nobody.
"""

import asyncio
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.workers.config import RolloutConfig
from verl.workers.rollout.replica import TokenOutput

from recipe_slca.verl_plugin.cpu.generation_batch import GenerationBatch, Request

_GATHER_S = 0.02
"""How long the first batch waits for more requests: the turns of a group's rollouts arrive nearly together."""


class GenerationServer:
    """Generates with the model in `model_path`; `config` is verl's rollout config."""

    def __init__(self, model_path: str, config: RolloutConfig):
        self._model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="sdpa")
        self._model.eval()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        self._end = tokenizer.eos_token_id
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self._end
        self._config = config
        self._global_steps: int | None = None
        self._queue: asyncio.Queue[Request] = asyncio.Queue()
        self._worker: asyncio.Task | None = None
        torch.manual_seed(config.seed)

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """Generate one turn. The stop token, when one was met, is part of the output.

        `log_probs` are those of the sampled tokens under the temperature asked for. Whatever goes wrong in
        generation is raised here.
        """
        self._worker = self._worker or asyncio.create_task(self._serve())
        room = self._config.prompt_length + self._config.response_length - len(prompt_ids)
        request = Request(
            prompt=list(prompt_ids),
            temperature=float(sampling_params.get("temperature", 1.0)),
            top_p=float(sampling_params.get("top_p", 1.0)),
            top_k=max(int(sampling_params.get("top_k") or 0), 0),
            stop=frozenset([self._end, *(sampling_params.get("stop_token_ids") or [])]),
            budget=max(1, min(int(sampling_params.get("max_tokens") or self._config.response_length), room)),
            result=asyncio.get_running_loop().create_future(),
        )
        await self._queue.put(request)
        return await request.result

    async def update_weights(self, named: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Load new weights. Raises `ValueError` when they are not the model's."""
        outcome = self._model.load_state_dict(named, strict=False)
        missing = set(outcome.missing_keys) - set(self._model.all_tied_weights_keys)
        if missing or outcome.unexpected_keys:
            raise ValueError(f"weights do not fit: missing {sorted(missing)}, unexpected {outcome.unexpected_keys}")
        self._global_steps = global_steps if global_steps is not None else self._global_steps

    async def set_global_steps(self, global_steps: int | None) -> None:
        self._global_steps = global_steps

    async def _no_operation(self, *_: Any, **__: Any) -> None:
        """For what only a server with device memory or a profiler has to do."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _no_operation
    abort_all_requests = resume_generation = start_profile = stop_profile = _no_operation

    async def _serve(self) -> None:
        running: list[GenerationBatch] = []
        while True:
            waiting = [] if running else [await self._queue.get()]
            if waiting:
                await asyncio.sleep(_GATHER_S)
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            started = [batch for requests in self._alike(waiting) for batch in self._start(requests)]
            going_on = [batch for batch in running + started if await self._advance(batch)]
            running = self._join(going_on)

    def _alike(self, waiting: list[Request]) -> list[list[Request]]:
        """Cut the waiting requests into batches with one sampling setting, at most max_num_seqs each."""
        size = self._config.max_num_seqs
        batches = []
        for sampling in dict.fromkeys(request.sampling for request in waiting):
            same = [request for request in waiting if request.sampling == sampling]
            batches += [same[first : first + size] for first in range(0, len(same), size)]
        return batches

    def _start(self, requests: list[Request]) -> list[GenerationBatch]:
        try:
            return [GenerationBatch(self._model, requests, self._pad)]
        except Exception as error:
            _fail(requests, error)
            return []

    async def _advance(self, batch: GenerationBatch) -> bool:
        """One step, and the results of what ended in it; whether the batch goes on."""
        requests = batch.requests
        try:
            goes_on = await asyncio.to_thread(batch.step)
        except Exception as error:
            _fail(requests, error)
            goes_on = False
        for request in requests:
            if request.ended and not request.result.done():
                request.result.set_result(self._output(request))
        return goes_on

    def _join(self, batches: list[GenerationBatch]) -> list[GenerationBatch]:
        joined: list[GenerationBatch] = []
        for batch in batches:
            for other in joined:
                rows = len(other.requests) + len(batch.requests)
                if other.requests[0].sampling == batch.requests[0].sampling and rows <= self._config.max_num_seqs:
                    other.absorb(batch)
                    break
            else:
                joined.append(batch)
        return joined

    def _output(self, request: Request) -> TokenOutput:
        return TokenOutput(
            token_ids=request.tokens,
            log_probs=request.log_probs,
            stop_reason="completed",
            extra_fields={"global_steps": self._global_steps},
        )


def _fail(requests: list[Request], error: Exception) -> None:
    """Tell every caller: a request must never hang."""
    for request in requests:
        if not request.result.done():
            request.result.set_exception(error)
