"""Grade replies with a frozen LLM behind an OpenAI-compatible endpoint. METHOD 3."""

import asyncio
import hashlib
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from recipe_slca.hierr.grades import Grade, score_of
from recipe_slca.hierr.judge_prompt import PROMPT_VERSION, RESPONSE_FORMAT, judge_messages, read_verdict
from recipe_slca.llm_client import ChatClient, EndpointFailure
from recipe_slca.settings import JudgeSettings
from recipe_slca.sgls.single_flight import SingleFlight, cache_key
from recipe_slca.sgls.sqlite_store import open_store
from recipe_slca.sgls.store import Store

_REFUSED_REQUEST = ("HTTP 400", "HTTP 404", "HTTP 422")


class LlmJudge:
    """Asks for one verdict or several of each reply; the median counts. Use one object from one event loop.

    A request that fails, or an answer that is no verdict, is asked again as `slca.judge.endpoint.retries`
    allows; samples that still failed are left out, and with none left the reply is ungraded. Verdicts are
    kept in the store, failures never are.
    """

    def __init__(self, settings: JudgeSettings, store: Store | None = None):
        """store: where verdicts are kept, by default the one that `slca.judge.cache` names.

        Raises `SettingsError` when `slca.judge.endpoint` cannot be used, `CacheUnusable` for the cache.
        """
        self._settings = settings
        self._client = ChatClient(settings.endpoint, "judge")
        self._store = store or open_store(settings.cache)
        self._counts: Counter[str] = Counter()
        self._flight = SingleFlight(self._store, self._counts)
        self._takes_format = True

    async def grade(self, question: str, tool_responses: Sequence[str], reply: str) -> Grade:
        """Grade one reply. Raises `CacheMiss` in a replay-only run that has no verdict on it."""
        messages = judge_messages(question, tool_responses, reply, self._settings.max_tool_response_tokens)
        samples = range(self._settings.samples)
        verdicts = await asyncio.gather(*(self._verdict(messages, sample) for sample in samples))
        scores = [verdict for verdict in verdicts if isinstance(verdict, float)]
        if not scores:
            self._counts["ungraded"] += 1
            return Grade(None, str(verdicts[0]))
        self._counts["graded"] += 1
        return Grade(statistics.median(scores))

    def metrics(self) -> dict[str, float]:
        """graded, ungraded: replies with a verdict and without; cache_hits, cache_misses, cache_shared:
        verdicts found, asked for, and asked for by another at that moment; the rest is the client's."""
        names = ("graded", "ungraded", "cache_hits", "cache_misses", "cache_shared")
        return {**{name: float(self._counts[name]) for name in names}, **self._client.metrics()}

    async def close(self) -> None:
        """Close all connections and the store."""
        await self._client.close()
        await self._store.close()

    async def _verdict(self, messages: list[dict[str, str]], sample: int) -> float | EndpointFailure:
        """One score, or why there is none."""
        endpoint = self._settings.endpoint
        asked = {
            "asked_for": "verdict",
            "model": endpoint.model,
            "prompt": PROMPT_VERSION,
            "material": hashlib.sha256(messages[-1]["content"].encode()).hexdigest(),
            "sample": sample,
            "temperature": endpoint.temperature,
            "top_p": endpoint.top_p,
            "seed": endpoint.seed,
        }

        async def ask() -> dict[str, Any]:
            return {"response": await self._ask(messages, sample), **asked}

        try:
            entry, _ = await self._flight.answer(cache_key(asked), ask)
        except EndpointFailure as failure:
            return failure
        return score_of(entry["response"])

    async def _ask(self, messages: list[dict[str, str]], sample: int) -> str:
        """The grade's name, asked for with the JSON format enforced by the server if it knows how."""
        if self._takes_format:
            try:
                return await self._client.ask(messages, read_verdict, sample=sample, response_format=RESPONSE_FORMAT)
            except EndpointFailure as failure:
                if not failure.last_error.startswith(_REFUSED_REQUEST):
                    raise
        grade = await self._client.ask(messages, read_verdict, sample=sample)
        # Only an answer to the plain request shows that the format was what the server refused.
        self._takes_format = False
        return grade
