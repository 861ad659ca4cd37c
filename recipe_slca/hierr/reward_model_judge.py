"""Grade replies with the reward model that the trainer serves itself.

A generative one is an ordinary chat judge behind the trainer's router. A discriminative one reads the whole
exchange and gives a single number without bounds, which the logistic function brings into [0, 1].
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recipe_slca.hierr.grades import Grade
from recipe_slca.hierr.judge_prompt import exchange
from recipe_slca.settings import JudgeSettings


@dataclass(frozen=True)
class RewardModel:
    """Where the trainer's reward model answers.

    router_address: "host:port", as verl passes it. model: the name it is served under.
    engine: whose HTTP interface it has. render: the model's chat template, messages to text.
    """

    router_address: str
    model: str
    engine: Literal["vllm", "sglang"]
    render: Callable[[list[dict[str, str]]], str]

    def as_chat_judge(self, settings: JudgeSettings) -> JudgeSettings:
        """`settings` with its endpoint at this model, for a generative one."""
        endpoint = settings.endpoint.model_copy(
            update={"base_urls": [f"http://{self.router_address}/v1"], "model": self.model, "api_key_env": ""}
        )
        return settings.model_copy(update={"endpoint": endpoint})


class DiscriminativeJudge:
    """A reward model that gives one number for an exchange. Use one object from one event loop."""

    def __init__(self, settings: JudgeSettings, reward_model: RewardModel):
        import openai

        endpoint = settings.endpoint
        # The package's low-level `post` brings its retries, backoff and timeouts to paths it does not know.
        self._client = openai.AsyncOpenAI(
            base_url=f"http://{reward_model.router_address}",
            api_key="none",
            timeout=endpoint.timeout_s,
            max_retries=endpoint.retries,
        )
        self._free = asyncio.Semaphore(endpoint.max_concurrency)
        self._max_response_tokens = settings.max_tool_response_tokens
        self._reward_model = reward_model
        self._graded = 0
        self._ungraded = 0

    async def grade(self, question: str, tool_responses: Sequence[str], reply: str) -> Grade:
        """Grade one reply; any failure of the server leaves it ungraded."""
        import openai

        text = self._reward_model.render(exchange(question, tool_responses, reply, self._max_response_tokens))
        try:
            async with self._free:
                score = await self._score(text)
        except (openai.APIError, ValueError) as error:
            self._ungraded += 1
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            return Grade(None, f"reward model at {self._reward_model.router_address}: {reason}")
        self._graded += 1
        return Grade(score)

    def metrics(self) -> dict[str, float]:
        """graded, ungraded: verdicts given and failed."""
        return {"graded": float(self._graded), "ungraded": float(self._ungraded)}

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _score(self, text: str) -> float:
        import httpx

        request: dict[str, Any] = {"model": self._reward_model.model, "input": text}
        path, answer_key = "/v1/embeddings", "embedding"
        if self._reward_model.engine == "vllm":
            request["use_activation"] = False
            path, answer_key = "/classify", "probs"
        response = await self._client.post(path, cast_to=httpx.Response, body=request)
        answer = response.json()
        try:
            logit = float(answer["data"][-1][answer_key][-1])
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"no data[-1].{answer_key}[-1] in the answer: {response.text[:200]}") from error
        if math.isnan(logit):
            raise ValueError("the score is not a number")
        return _logistic(logit)


def _logistic(logit: float) -> float:
    return 0.5 * (1 + math.tanh(logit / 2))
