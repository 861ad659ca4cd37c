"""Token-in, token-out generation with a transformers model, in batches.

Requests that wait together run together. Each keeps its own stop tokens and token budget; those with other
sampling settings run in another batch.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, StoppingCriteria, StoppingCriteriaList
from verl.workers.config import RolloutConfig
from verl.workers.rollout.replica import TokenOutput

_GATHER_S = 0.02
"""How long a batch waits for more requests: the turns of a group's rollouts arrive nearly together."""


@dataclass
class _Request:
    prompt: list[int]
    temperature: float
    top_p: float
    top_k: int
    stop: frozenset[int]
    budget: int
    result: asyncio.Future

    @property
    def sampling(self) -> tuple[float, float, int]:
        return self.temperature, self.top_p, self.top_k


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
        self._queue: asyncio.Queue[_Request] = asyncio.Queue()
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
        request = _Request(
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
        while True:
            waiting = [await self._queue.get()]
            await asyncio.sleep(_GATHER_S)
            while not self._queue.empty():
                waiting.append(self._queue.get_nowait())
            for sampling in dict.fromkeys(request.sampling for request in waiting):
                same = [request for request in waiting if request.sampling == sampling]
                for first in range(0, len(same), self._config.max_num_seqs):
                    await self._run(same[first : first + self._config.max_num_seqs])

    async def _run(self, batch: list[_Request]) -> None:
        try:
            outputs = await asyncio.to_thread(self._generate, batch)
        except Exception as error:  # told to every caller: a request must never hang
            for request in batch:
                request.result.set_exception(error)
            return
        for request, output in zip(batch, outputs, strict=True):
            if not request.result.done():
                request.result.set_result(output)

    @torch.no_grad()
    def _generate(self, batch: list[_Request]) -> list[TokenOutput]:
        width = max(len(request.prompt) for request in batch)
        input_ids = torch.full((len(batch), width), self._pad)
        attention_mask = torch.zeros((len(batch), width), dtype=torch.long)
        for row, request in enumerate(batch):
            input_ids[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
            attention_mask[row, width - len(request.prompt) :] = 1
        temperature, top_p, top_k = batch[0].sampling
        sampling = (
            {"do_sample": True, "temperature": temperature, "top_p": top_p, "top_k": top_k}
            if temperature > 0
            else {"do_sample": False}
        )
        output = self._model.generate(
            input_ids=input_ids,
            attention_mask=attention_mask,
            generation_config=GenerationConfig(
                max_new_tokens=max(request.budget for request in batch),
                pad_token_id=self._pad,
                return_dict_in_generate=True,
                output_logits=True,
                **sampling,
            ),
            stopping_criteria=StoppingCriteriaList([_StopOrBudget(batch, width)]),
        )
        tokens = output.sequences[:, width:]
        logits = torch.stack(output.logits, dim=1).float() / (temperature if temperature > 0 else 1.0)
        log_probs = torch.log_softmax(logits, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return [
            self._output(request, tokens[row].tolist(), log_probs[row].tolist()) for row, request in enumerate(batch)
        ]

    def _output(self, request: _Request, tokens: list[int], log_probs: list[float]) -> TokenOutput:
        stops = (position + 1 for position, token in enumerate(tokens) if token in request.stop)
        length = min(next(stops, len(tokens)), request.budget)
        return TokenOutput(
            token_ids=tokens[:length],
            log_probs=log_probs[:length],
            stop_reason="completed",
            extra_fields={"global_steps": self._global_steps},
        )


class _StopOrBudget(StoppingCriteria):
    """Ends each row at its own stop tokens or budget."""

    def __init__(self, batch: list[_Request], prompt_width: int):
        self._batch = batch
        self._prompt_width = prompt_width

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **_: Any) -> torch.BoolTensor:
        generated = input_ids.shape[1] - self._prompt_width
        last = input_ids[:, -1].tolist()
        return torch.tensor(
            [
                token in request.stop or generated >= request.budget
                for token, request in zip(last, self._batch, strict=True)
            ]
        )
