"""A batch of generations that run together, one token a step; rows join it as they come and leave as they end."""

import asyncio
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel, TopKLogitsWarper, TopPLogitsWarper

_COMPACT_BELOW = 0.75
"""Rows that have ended are cut out of the cache when this share or less is left: each cut copies the cache."""


@dataclass
class Request:
    """One turn to generate: tokens so far and their log-probs, and when to stop.

    budget: most tokens. stop: tokens that end it, and are part of it.
    """

    prompt: list[int]
    temperature: float
    top_p: float
    top_k: int
    stop: frozenset[int]
    budget: int
    result: asyncio.Future
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    @property
    def sampling(self) -> tuple[float, float, int]:
        """What all rows of a batch share."""
        return self.temperature, self.top_p, self.top_k

    @property
    def ended(self) -> bool:
        return len(self.tokens) >= self.budget or (bool(self.tokens) and self.tokens[-1] in self.stop)


class GenerationBatch:
    """Generates for `requests`, which share their sampling settings. Call `step` until it returns False.

    requests: those that have not ended, and some that ended lately. pad_token: any token, it is masked.
    """

    def __init__(self, model: PreTrainedModel, requests: list[Request], pad_token: int):
        self._model = model
        self.requests = requests
        self._temperature, top_p, top_k = requests[0].sampling
        self._filters = [TopKLogitsWarper(top_k)] if top_k > 0 else []
        self._filters += [TopPLogitsWarper(top_p)] if top_p < 1 else []
        self._cache = DynamicCache()
        width = max(len(request.prompt) for request in requests)
        tokens = torch.full((len(requests), width), pad_token)
        self._mask = torch.zeros((len(requests), width), dtype=torch.long)
        for row, request in enumerate(requests):
            tokens[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
            self._mask[row, width - len(request.prompt) :] = 1
        self._next = tokens

    def absorb(self, other: "GenerationBatch") -> None:
        """Take over the rows of a batch with the same sampling settings. Both have made a step, so that the prompts
        are in the cache: one step of many rows costs little more than one of a single row."""
        width = max(self._mask.shape[1], other._mask.shape[1])
        missing, others_missing = width - self._mask.shape[1], width - other._mask.shape[1]
        for layer, others in zip(self._cache.layers, other._cache.layers, strict=True):
            layer.keys = torch.cat([pad(layer.keys, (0, 0, missing, 0)), pad(others.keys, (0, 0, others_missing, 0))])
            layer.values = torch.cat(
                [pad(layer.values, (0, 0, missing, 0)), pad(others.values, (0, 0, others_missing, 0))]
            )
        self._mask = torch.cat([pad(self._mask, (missing, 0)), pad(other._mask, (others_missing, 0))])
        self._next = torch.cat([self._next, other._next])
        self.requests = self.requests + other.requests

    @torch.no_grad()
    def step(self) -> bool:
        """Generate one token for each row that has not ended; returns whether any row goes on."""
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)[:, -self._next.shape[1] :]
        logits = self._model(
            input_ids=self._next,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        tokens, log_probs = self._sample(logits.float())
        for request, token, log_prob in zip(self.requests, tokens.tolist(), log_probs.tolist(), strict=True):
            if not request.ended:
                request.tokens.append(token)
                request.log_probs.append(log_prob)
        self._next = tokens.unsqueeze(1)
        self._mask = torch.cat([self._mask, torch.ones_like(self._next)], dim=1)
        going_on = [row for row, request in enumerate(self.requests) if not request.ended]
        if going_on and len(going_on) <= _COMPACT_BELOW * len(self.requests):
            self._keep(torch.tensor(going_on))
        return bool(going_on)

    def _sample(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next token of each row and its log-prob under the temperature, before top-k and top-p."""
        greedy = self._temperature <= 0
        scores = torch.log_softmax(logits if greedy else logits / self._temperature, dim=-1)
        allowed = scores
        for keep_likely in self._filters:
            allowed = keep_likely(None, allowed)
        tokens = scores.argmax(-1) if greedy else torch.multinomial(allowed.exp(), 1).squeeze(1)
        return tokens, scores.gather(1, tokens.unsqueeze(1)).squeeze(1)

    def _keep(self, rows: torch.Tensor) -> None:
        self.requests = [self.requests[row] for row in rows.tolist()]
        self._mask, self._next = self._mask[rows], self._next[rows]
        padding = int(self._mask.any(0).int().argmax())  # columns at the left that no row needs any more
        self._mask = self._mask[:, padding:]
        for layer in self._cache.layers:
            layer.keys, layer.values = layer.keys[rows, :, padding:], layer.values[rows, :, padding:]
