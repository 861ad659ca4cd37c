"""Whether a simulator works: counts, latencies, and the share of calls that got no answer."""

from collections import Counter, deque

from recipe_slca.llm_client import EndpointFailure, latency_quantiles
from recipe_slca.sgls.validation import ERROR_TYPES

LATENCIES_KEPT = 2000
PREFIX = "slca/sgls/"
_COUNTS = (
    "calls",
    "ok",
    "replay",
    "llm",
    "synthetic",
    "cache_hits",
    "cache_misses",
    "cache_shared",
    "broken_schema",
    "unchecked_pattern",
    "left_out_tools",
    "service_unavailable",
)


class SimulatorDown(RuntimeError):
    """Too many calls got no answer; the message has the endpoint, the last error and the counts."""


class Health:
    """Counts what happened to calls and decides when a run must stop.

    max_failure_rate: share of a window of `window` calls that may go unanswered. Before the window is full
        the same number of failures is allowed, so that one failure at the start stops nothing.
    """

    def __init__(self, max_failure_rate: float, window: int):
        self.counts: Counter[str] = Counter()
        self._max_failure_rate = max_failure_rate
        self._window = window
        self._failed: deque[bool] = deque(maxlen=window)
        self._latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)

    def answered(self, status: str, source: str, seconds: float) -> None:
        """Count a call that got an observation: a response, or the error of an invalid call."""
        self.counts["calls"] += 1
        self.counts[status] += 1
        if status == "ok":
            self.counts[source] += 1
        self._failed.append(False)
        self._latencies.append(seconds)

    def failed(self, failure: EndpointFailure | str) -> None:
        """Count a call that got no answer. Raises `SimulatorDown` when there are too many."""
        self.counts["calls"] += 1
        self.counts["service_unavailable"] += 1
        self._failed.append(True)
        if sum(self._failed) > self._max_failure_rate * self._window:
            raise SimulatorDown(
                f"{sum(self._failed)} of the last {len(self._failed)} calls got no answer from the simulator, more "
                f"than slca.simulator.max_failure_rate={self._max_failure_rate:g} allows in {self._window}. {failure}. "
                f"Since the start: {self.counts['calls']} calls, {self.counts['ok']} answered, "
                f"{self.counts['service_unavailable']} without answer. Bring the endpoint back, then resume the run."
            )

    def metrics(self) -> dict[str, float]:
        """Always the same keys: counts since the start, seconds for the last calls."""
        p50, p95 = latency_quantiles(self._latencies)
        named = {name: float(self.counts[name]) for name in _COUNTS}
        errors = {f"error/{name}": float(self.counts[name]) for name in ERROR_TYPES}
        calls = max(1, self.counts["calls"])
        rates = {
            "failure_rate": sum(self._failed) / max(1, len(self._failed)),
            "invalid_rate": sum(self.counts[name] for name in ERROR_TYPES) / calls,
            "call_p50_s": p50,
            "call_p95_s": p95,
        }
        return {f"{PREFIX}{name}": value for name, value in {**named, **errors, **rates}.items()}
