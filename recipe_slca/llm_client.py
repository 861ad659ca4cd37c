"""Ask a chat model over HTTP until the answer is usable, or fail with a typed error.

One client serves the simulator and another the judge. Both speak to any OpenAI-compatible server through
the official `openai` package; what is added here is what days of unattended rollouts need: requests spread
over several servers by load, a server that fails is rested and tried again, every request has a deadline,
tries are bounded and back off, and an answer that the caller cannot use is asked for again.
"""

import asyncio
import os
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio

from recipe_slca.settings import EndpointSettings, SettingsError

T = TypeVar("T")

FIRST_BACKOFF_S = 0.25
LONGEST_BACKOFF_S = 30.0
FAILURES_BEFORE_REST = 3
"""Failures in a row: a server that drops one request in ten is not down."""
FIRST_REST_S = 1.0
LONGEST_REST_S = 60.0
LATENCIES_KEPT = 2000
SEED_STEP = 1000
METRICS = (
    "requests",
    "retries",
    "unusable_answers",
    "failures",
    "prompt_tokens",
    "completion_tokens",
    "latency_p50_s",
    "latency_p95_s",
    "endpoints_resting",
)
"""The keys of `ChatClient.metrics`."""
_ERROR_CHARS = 300
_PASSING = (408, 409, 429)
_REQUEST_AT_FAULT = (400, 413, 422)


class UnusableAnswer(ValueError):
    """Raised by `accept` for an answer that must be asked for again; the message says what is wrong with it."""


class EndpointFailure(RuntimeError):
    """No usable answer came. `endpoint` was tried last, `last_error` is what it did, `tries` counts all tries."""

    def __init__(self, name: str, endpoint: str, last_error: str, tries: int):
        super().__init__(f"{name}: no usable answer after {tries} tries; last from {endpoint}: {last_error}")
        self.name = name
        self.endpoint = endpoint
        self.last_error = last_error
        self.tries = tries

    def __reduce__(self) -> tuple[type, tuple[str, str, str, int]]:
        return type(self), (self.name, self.endpoint, self.last_error, self.tries)


class _FailedRequest(Exception):
    """One try that got no text. `retry_after` is the server's own wish in seconds; `final` forbids a retry."""

    def __init__(self, reason: str, *, final: bool = False, retry_after: float = 0.0):
        super().__init__(reason)
        self.final = final
        self.retry_after = retry_after


@dataclass
class _Endpoint:
    url: str
    client: Any
    under_way: int = 0
    failures_in_a_row: int = 0
    rests_until: float = 0.0

    def failed(self, now: float) -> None:
        self.failures_in_a_row += 1
        beyond = self.failures_in_a_row - FAILURES_BEFORE_REST
        if beyond >= 0:
            self.rests_until = now + min(LONGEST_REST_S, FIRST_REST_S * 2 ** min(beyond, 16))

    def answered(self) -> None:
        self.failures_in_a_row = 0
        self.rests_until = 0.0


@dataclass
class _Counts:
    requests: int = 0
    retries: int = 0
    unusable_answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES_KEPT))


class ChatClient:
    """A chat model behind one or several base URLs. Use one object from one event loop.

    name: "simulator" or "judge"; stands in messages and points to the setting `slca.<name>.endpoint`.
    Raises `SettingsError` when the endpoint cannot be used as configured.
    """

    def __init__(self, settings: EndpointSettings, name: str):
        self.settings = settings
        self.name = name
        key = _read_key(settings, name)
        for setting in ("base_urls", "model"):
            if not getattr(settings, setting):
                raise SettingsError(f"slca.{name}.endpoint.{setting} is empty: the {name} needs a server to ask")
        self._secret = key
        self._endpoints = [_Endpoint(url, _open(url, key, settings.timeout_s)) for url in settings.base_urls]
        self._free = asyncio.Semaphore(settings.max_concurrency)
        self._counts = _Counts()

    async def ask(
        self,
        messages: list[dict[str, Any]],
        accept: Callable[[str], T],
        *,
        sample: int = 0,
        response_format: dict[str, Any] | None = None,
    ) -> T:
        """Return `accept(text)` of the first answer that `accept` takes.

        accept: turns the answer's text into a value, or raises `UnusableAnswer`.
        sample: tells repeated questions apart, since it moves the seed: seed + sample + 1000 * (unusable
            answers so far), so that a repeated run asks the same.
        Raises `EndpointFailure` after `retries` further tries, or at once when no retry can help: HTTP 400, 413
        and 422, and from an only server any 4xx other than 408, 409 and 429.
        """
        unusable = 0
        reason = ""
        endpoint = self._endpoints[0]
        for attempt in range(self.settings.retries + 1):
            if attempt:
                self._counts.retries += 1
            seed = None if self.settings.seed is None else self.settings.seed + sample + SEED_STEP * unusable
            # Waiting happens before a slot is taken, so that a resting server holds up nobody else.
            await self._wait_for_an_endpoint()
            async with self._free:
                endpoint = self._choose()
                try:
                    return accept(await self._request(endpoint, messages, seed, response_format))
                except UnusableAnswer as error:
                    unusable += 1
                    self._counts.unusable_answers += 1
                    reason = f"unusable answer: {error}"
                    continue
                except _FailedRequest as error:
                    reason = str(error)
                    if error.final:
                        break
                    pause = max(error.retry_after, _backoff(attempt))
            if attempt < self.settings.retries:
                await asyncio.sleep(min(pause, LONGEST_BACKOFF_S))
        self._counts.failures += 1
        raise EndpointFailure(self.name, endpoint.url, reason, attempt + 1)

    def metrics(self) -> dict[str, float]:
        """Counts since the start, and seconds for the last requests that were answered."""
        counts = self._counts
        p50, p95 = latency_quantiles(counts.latencies)
        return {
            "requests": float(counts.requests),
            "retries": float(counts.retries),
            "unusable_answers": float(counts.unusable_answers),
            "failures": float(counts.failures),
            "prompt_tokens": float(counts.prompt_tokens),
            "completion_tokens": float(counts.completion_tokens),
            "latency_p50_s": p50,
            "latency_p95_s": p95,
            "endpoints_resting": float(sum(endpoint.rests_until > time.monotonic() for endpoint in self._endpoints)),
        }

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(endpoint.client.close() for endpoint in self._endpoints))

    async def _wait_for_an_endpoint(self) -> None:
        """When all servers rest, wait for the first to be tried again, but never longer than a backoff."""
        rest = min(endpoint.rests_until for endpoint in self._endpoints) - time.monotonic()
        if rest > 0:
            await asyncio.sleep(min(rest, LONGEST_BACKOFF_S) * random.uniform(0.5, 1.0))

    def _choose(self) -> _Endpoint:
        now = time.monotonic()
        awake = [endpoint for endpoint in self._endpoints if endpoint.rests_until <= now]
        if awake:
            return min(awake, key=lambda endpoint: endpoint.under_way)
        return min(self._endpoints, key=lambda endpoint: endpoint.rests_until)

    async def _request(
        self, endpoint: _Endpoint, messages: list[dict[str, Any]], seed: int | None, response_format: Any
    ) -> str:
        settings = self.settings
        body = {
            "model": settings.model,
            "messages": messages,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens,
        }
        if seed is not None:
            body["seed"] = seed
        if response_format is not None:
            body["response_format"] = response_format
        self._counts.requests += 1
        endpoint.under_way += 1
        start = time.monotonic()
        try:
            # The package's own timeout starts anew with each received piece; this one bounds the whole request.
            with anyio.fail_after(settings.timeout_s):
                # As plain JSON: typed parameters and results cost the client a third of its time.
                completion = await endpoint.client.post("/chat/completions", cast_to=object, body=body)
            text = _text_of(completion)
        except Exception as error:
            failed = self._explain(error)
            if not failed.final:
                endpoint.failed(time.monotonic())
            raise failed from error
        finally:
            endpoint.under_way -= 1
        endpoint.answered()
        self._counts.latencies.append(time.monotonic() - start)
        usage = completion.get("usage")
        self._counts.prompt_tokens += _count(usage, "prompt_tokens")
        self._counts.completion_tokens += _count(usage, "completion_tokens")
        return text

    def _explain(self, error: Exception) -> _FailedRequest:
        import openai

        if isinstance(error, _FailedRequest):
            return error
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return _FailedRequest(f"no answer within {self.settings.timeout_s:g} s")
        text = " ".join(f"{type(error).__name__}: {error}".split())
        if self._secret:
            text = text.replace(self._secret, "***")
        reason = text[:_ERROR_CHARS]
        if isinstance(error, openai.APIStatusError):
            status = error.status_code
            # A wrong key, path or model may be one server's own fault: another one can be asked.
            own_fault = status in _REQUEST_AT_FAULT or len(self._endpoints) == 1
            final = 400 <= status < 500 and status not in _PASSING and own_fault
            return _FailedRequest(
                f"HTTP {status}: {reason}", final=final, retry_after=_retry_after(error.response.headers)
            )
        if isinstance(error, openai.APIConnectionError):
            return _FailedRequest(f"connection failed: {error.__cause__ or reason}"[:_ERROR_CHARS])
        return _FailedRequest(f"not a chat completion: {reason}")


def latency_quantiles(seconds: "deque[float] | list[float]") -> tuple[float, float]:
    """The median and the 95th percentile; 0 and 0 without data."""
    if not seconds:
        return 0.0, 0.0
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return cuts[9], cuts[18]


def _read_key(settings: EndpointSettings, name: str) -> str:
    if not settings.api_key_env:
        return ""
    key = os.environ.get(settings.api_key_env, "")
    if not key:
        raise SettingsError(
            f"slca.{name}.endpoint.api_key_env names {settings.api_key_env}, but that environment variable is not set"
        )
    return key


def _open(url: str, key: str, timeout_s: float) -> Any:
    import openai

    # An empty key would make the package look for OPENAI_API_KEY, which may belong to another service.
    return openai.AsyncOpenAI(base_url=url, api_key=key or "none", timeout=timeout_s, max_retries=0)


def _text_of(completion: Any) -> str:
    try:
        text = completion["choices"][0]["message"]["content"]
    except (IndexError, TypeError, KeyError) as error:
        raise _FailedRequest('not a chat completion: no ["choices"][0]["message"]["content"]') from error
    if text is not None and not isinstance(text, str):
        raise _FailedRequest(f"not a chat completion: content is {type(text).__name__}")
    return text or ""


def _count(usage: Any, field_name: str) -> int:
    value = usage.get(field_name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) else 0


def _retry_after(headers: Any) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", 0)))
    except ValueError:
        return 0.0


def _backoff(attempt: int) -> float:
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2**attempt) * random.uniform(0.5, 1.0)
