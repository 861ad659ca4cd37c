"""The simulator: validate a call, then let the responders answer it in order (METHOD 4)."""

import time
from collections.abc import Sequence
from typing import Any

from recipe_slca.llm_client import METRICS, EndpointFailure
from recipe_slca.settings import SimulatorSettings
from recipe_slca.sgls.health import PREFIX, Health
from recipe_slca.sgls.llm_responder import LlmResponder
from recipe_slca.sgls.observation import Observation, error_observation
from recipe_slca.sgls.responders import RecordedCall, ReplayResponder, Request, Responder
from recipe_slca.sgls.sqlite_store import open_store
from recipe_slca.sgls.store import Store
from recipe_slca.sgls.synthetic import SyntheticResponder
from recipe_slca.sgls.tools import Tools
from recipe_slca.sgls.validation import check_bounds, validate
from recipe_slca.tool_calls import ToolCall
from recipe_slca.trajectory import CallRecord


class Simulator:
    """Stands in for the real APIs in rollouts. Use one object from one event loop.

    store: where the LLM's answers are kept; by default what `settings.cache` says.
    Raises `SettingsError` when the LLM is to answer and its endpoint cannot be used as configured.
    """

    def __init__(self, settings: SimulatorSettings, store: Store | None = None):
        self.settings = settings
        self._health = Health(settings.max_failure_rate, settings.failure_window)
        self._store = store
        self._llm: LlmResponder | None = None
        self._responders: list[Responder] = [self._make(name) for name in settings.responders]

    def read_tools(self, schemas: list[Any] | str | None) -> Tools:
        """The tools of a rollout; counts those of its schemas that cannot be read. Never raises."""
        tools = Tools.from_schemas(schemas)
        self._health.counts["left_out_tools"] += sum(tools.skipped.values())
        return tools

    async def respond(
        self,
        tools: Tools,
        call: ToolCall,
        history: Sequence[CallRecord] = (),
        recorded: Sequence[RecordedCall] = (),
    ) -> Observation:
        """The observation of one call.

        An invalid call gets a typed error. A call that no responder could answer gets `service_unavailable`.
        history: the earlier calls of this rollout. recorded: the row's recorded calls.
        Raises `SimulatorDown` when more than `max_failure_rate` of the last calls got no answer, and
        `CacheMiss` in a replay-only run.
        """
        start = time.perf_counter()
        fault = self._check(tools, call)
        if fault is not None:
            self._health.answered(fault.status, fault.source, time.perf_counter() - start)
            return fault
        request = Request(call, tools.get(call.name), history, recorded)
        failure: EndpointFailure | str = f"no responder of {list(self.settings.responders)} answers {call.name}"
        for responder in self._responders:
            try:
                response = await responder.respond(request)
            except EndpointFailure as error:
                failure = error
                continue
            if response is not None:
                self._health.answered("ok", responder.name, time.perf_counter() - start)
                return Observation(response.text, "ok", "cache" if response.cached else responder.name)
        self._health.failed(failure)
        return error_observation(
            {"type": "service_unavailable", "tool": call.name[:160], "expected": "an answer at another time"},
            "simulator",
        )

    def metrics(self) -> dict[str, float]:
        """Counts and latencies under `slca/sgls/`, always with the same keys."""
        client = self._llm.client.metrics() if self._llm else dict.fromkeys(METRICS, 0.0)
        return {**self._health.metrics(), **{f"{PREFIX}llm_{name}": value for name, value in client.items()}}

    async def close(self) -> None:
        """Close connections and the store."""
        if self._llm is not None:
            await self._llm.close()
        if self._store is not None:
            await self._store.close()

    def _check(self, tools: Tools, call: ToolCall) -> Observation | None:
        if self.settings.schema_guided:
            return validate(tools, call, self._health.counts)
        return check_bounds(call)

    def _make(self, name: str) -> Responder:
        if name == "replay":
            return ReplayResponder()
        if name == "synthetic":
            return SyntheticResponder()
        self._store = self._store or open_store(self.settings.cache)
        self._llm = LlmResponder(self.settings, self._store, self._health.counts)
        return self._llm
