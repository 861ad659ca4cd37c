"""How fast the simulator is, beside the plain tools it is built on.

    python tests/benchmarks/bench_sgls.py

Each row has what was measured, our figure, the peer's figure in the same run, and their ratio. What one
process computes alone is timed in seconds of its CPU, so that other work on the machine does not count.
"""

import asyncio
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jsonschema
import openai
import psutil

from recipe_slca.settings import SimulatorSettings
from recipe_slca.sgls import Simulator, Tools
from recipe_slca.sgls.chat_tokens import data_block
from recipe_slca.sgls.llm_responder import INSTRUCTIONS
from recipe_slca.sgls.sqlite_store import SqliteStore
from recipe_slca.sgls.validation import validate
from recipe_slca.tool_calls import ToolCall

SERVER = Path(__file__).parents[1] / "scripted_server.py"
FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "description": "Name of the city."},
        "units": {"type": "string", "enum": ["metric", "imperial"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "tags": {"type": "array", "items": {"type": "string"}},
        "near": {
            "anyOf": [
                {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}},
                {"type": "null"},
            ]
        },
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = Tools.from_schemas([{"name": "forecast", "parameters": FORECAST}])
ROUNDS = 3


def call(number: int) -> ToolCall:
    """A valid call, another one for each number."""
    arguments = {"city": f"City {number}", "units": "metric", "days": 3, "tags": ["a"], "near": {"lat": 1.5, "lon": 2}}
    return ToolCall("forecast", arguments)


def run() -> list[dict]:
    """All rows."""
    return [*bench_validation(), *bench_warm_cache(), *bench_llm_path(), *bench_faults()]


def bench_validation(times: int = 20_000) -> list[dict]:
    """Peer: the pure Python `jsonschema`, with its validator compiled beforehand too."""
    reference = jsonschema.Draft202012Validator(FORECAST)
    counts: Counter[str] = Counter()
    valid, invalid = call(0), ToolCall("forecast", {**call(0).arguments, "units": "kelvin"})
    rows = []
    for what, example in (("validation of a valid call", valid), ("validation of an invalid call", invalid)):
        ours = _per_second(lambda example=example: validate(TOOLS, example, counts), times)
        peer = _per_second(lambda example=example: list(reference.iter_errors(example.arguments)), times // 10)
        rows.append(_row(what, ours, peer, "calls/s"))
    return rows


def bench_warm_cache(answers: int = 2000, times: int = 20_000) -> list[dict]:
    """Peer: a bare SELECT by key in Python's sqlite3 on the same file, without validation, key or metrics."""
    with tempfile.TemporaryDirectory() as folder, _server() as url:
        path = Path(folder) / "answers.db"

        async def ours() -> float:
            simulator = Simulator(_settings(url), SqliteStore(path))
            await _gather(64, (lambda n=n: simulator.respond(TOOLS, call(n)) for n in range(answers)))
            calls = [call(n) for n in range(answers)]
            start = time.process_time()
            for n in range(times):
                assert (await simulator.respond(TOOLS, calls[n % answers])).source == "cache"
            took = time.process_time() - start
            await simulator.close()
            return times / took

        answered = asyncio.run(ours())
        connection = sqlite3.connect(path)
        keys = [row[0] for row in connection.execute("SELECT key FROM answers")]
        select = "SELECT response FROM answers WHERE key = ?"
        keys_in_turn = iter(keys * (times // answers + 1))
        peer = _per_second(lambda: connection.execute(select, (next(keys_in_turn),)).fetchone(), times)
        connection.close()
    return [_row("answers from a warm SQLite cache, one process", answered, peer, "answers/s")]


def bench_llm_path(requests: int = 512, concurrency: int = 64) -> list[dict]:
    """Peer: the bare `openai` client, asking as much at the same concurrency of the same server (0.5 s an answer)."""
    kinds = ("bare", "memory", "SQLite")
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    cpu: dict[str, list[float]] = {kind: [] for kind in kinds}
    with _server("--slow", "1.0", "--slow-s", "0.5") as url, tempfile.TemporaryDirectory() as folder:
        for round_ in range(ROUNDS):
            for kind in kinds:
                store = SqliteStore(Path(folder) / f"{round_}.db") if kind == "SQLite" else None
                work = _bare_client if kind == "bare" else partial(_simulated, store=store)
                start = time.process_time()
                rates[kind].append(asyncio.run(work(url, requests, concurrency)))
                cpu[kind].append(1000 * (time.process_time() - start) / requests)
    rows = []
    for kind in kinds[1:]:
        what = f"LLM path, {concurrency} at once, 0.5 s an answer, {kind} cache"
        rows.append(_row(what, statistics.median(rates[kind]), statistics.median(rates["bare"]), "calls/s"))
        rows.append(_row(f"{what}: CPU of the client", min(cpu[kind]), min(cpu["bare"]), "ms/call"))
    return rows


def bench_faults(calls: int = 2000, concurrency: int = 64) -> list[dict]:
    """2,000 calls with 10% errors, 10% slow answers and 5% dropped connections. Peer: the same without faults."""
    figures = {}
    for name, faults in {
        "faulty": ("--errors", "0.1", "--slow", "0.1", "--dropped", "0.05", "--slow-s", "0.5"),
        "sound": (),
    }.items():
        with _server(*faults) as url, tempfile.TemporaryDirectory() as folder:
            figures[name] = asyncio.run(_with_faults(url, Path(folder), calls, concurrency))
    faulty, sound = figures["faulty"], figures["sound"]
    return [
        _row(f"calls a second with faults, concurrency {concurrency}", faulty["rate"], sound["rate"], "calls/s"),
        _row("calls that ended with an answer", faulty["answered"], sound["answered"], f"of {calls}"),
        _row("calls that ended with a typed failure", faulty["failed"], sound["failed"], f"of {calls}"),
        _row("longest call", faulty["longest"], sound["longest"], "s"),
        _row("memory grown over the calls", faulty["grown"], sound["grown"], "MB"),
    ]


async def _with_faults(url: str, folder: Path, calls: int, concurrency: int) -> dict[str, float]:
    simulator = Simulator(_settings(url, max_failure_rate=1.0), SqliteStore(folder / "answers.db"))
    took: list[float] = []

    async def timed(number: int) -> str:
        start = time.perf_counter()
        observation = await simulator.respond(TOOLS, call(number))
        took.append(time.perf_counter() - start)
        return observation.status

    # Buffers, connections and caches reach their size first.
    await _gather(concurrency, (lambda n=n: timed(-n) for n in range(1, 501)))
    took.clear()
    memory = psutil.Process().memory_info().rss
    start = time.perf_counter()
    statuses = Counter(await _gather(concurrency, (lambda n=n: timed(n) for n in range(calls))))
    rate = calls / (time.perf_counter() - start)
    grown = (psutil.Process().memory_info().rss - memory) / 1e6
    await simulator.close()
    return {
        "rate": rate,
        "answered": statuses["ok"],
        "failed": statuses["service_unavailable"],
        "longest": max(took),
        "grown": grown,
    }


async def _simulated(url: str, requests: int, concurrency: int, store: SqliteStore | None) -> float:
    simulator = Simulator(_settings(url), store)
    start = time.perf_counter()
    observations = await _gather(concurrency, (lambda n=n: simulator.respond(TOOLS, call(n)) for n in range(requests)))
    took = time.perf_counter() - start
    assert all(observation.source == "llm" for observation in observations)
    await simulator.close()
    return requests / took


async def _bare_client(url: str, requests: int, concurrency: int) -> float:
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)

    async def ask(number: int) -> None:
        question = "\n".join(data_block("data", value) for value in (FORECAST, call(number).arguments))
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
        completion = await client.chat.completions.create(model="scripted", messages=messages, temperature=0.7)
        json.loads(completion.choices[0].message.content)

    start = time.perf_counter()
    await _gather(concurrency, (lambda n=n: ask(n) for n in range(requests)))
    took = time.perf_counter() - start
    await client.close()
    return requests / took


async def _gather(concurrency: int, jobs: Iterator[Callable[[], Awaitable]]) -> list:
    """Run all jobs, so many at once, as so many rollouts would."""
    results = []

    async def worker() -> None:
        for job in jobs:
            results.append(await job())

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return results


def _settings(url: str, **others) -> SimulatorSettings:
    endpoint = {"base_urls": [url], "model": "scripted", "timeout_s": 5.0, "retries": 2}
    return SimulatorSettings(responders=["llm"], endpoint=endpoint, **others)


@contextmanager
def _server(*options: str) -> Iterator[str]:
    """A scripted server in a process of its own; yields its base URL."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(timeout=30)


def _per_second(work: Callable[[], object], times: int) -> float:
    """The best of several rounds, which is the one that others disturbed least."""
    best = 0.0
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(times // ROUNDS):
            work()
        best = max(best, (times // ROUNDS) / (time.process_time() - start))
    return best


def _row(what: str, ours: float, peer: float, unit: str) -> dict:
    return {"what": what, "ours": ours, "peer": peer, "ratio": ours / peer if peer else float("nan"), "unit": unit}


if __name__ == "__main__":
    for row in run():
        print(f"{row['what']:<72} {row['ours']:>12.2f} {row['peer']:>12.2f} {row['ratio']:>7.2f}  {row['unit']}")
