"""Two thousand calls against a server that fails in every way: none hangs, none is lost, memory stays."""

import asyncio
import gc
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from recipe_slca.settings import SimulatorSettings
from recipe_slca.sgls import Simulator, Tools
from recipe_slca.sgls.sqlite_store import SqliteStore
from recipe_slca.tool_calls import ToolCall

CONCURRENCY = 64
TIMEOUT_S = 10.0
RETRIES = 2
DEADLINE_S = (RETRIES + 1) * (TIMEOUT_S + 2)
SERVER = Path(__file__).parents[1] / "scripted_server.py"
TOOLS = Tools.from_schemas(
    [{"name": "get", "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}]
)


@pytest.fixture
def url():
    faults = ["--errors", "0.1", "--slow", "0.1", "--dropped", "0.05", "--slow-s", "0.3"]
    server = subprocess.Popen(
        [sys.executable, str(SERVER), *faults], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield server.stdout.readline().strip()
    server.stdin.close()
    server.wait(timeout=30)


async def answer_all(simulator: Simulator, numbers: range) -> tuple[Counter, float]:
    """How the calls ended, and how long the longest one took."""
    waiting = iter(numbers)
    statuses: Counter = Counter()
    longest = 0.0

    async def rollout() -> None:
        nonlocal longest
        for number in waiting:
            start = time.monotonic()
            observation = await simulator.respond(TOOLS, ToolCall("get", {"n": number}))
            longest = max(longest, time.monotonic() - start)
            statuses[observation.status] += 1

    await asyncio.gather(*(rollout() for _ in range(CONCURRENCY)))
    return statuses, longest


def test_two_thousand_calls_with_faults(url, tmp_path):
    endpoint = {"base_urls": [url], "model": "frozen", "timeout_s": TIMEOUT_S, "retries": RETRIES}
    settings = SimulatorSettings(responders=["llm"], endpoint=endpoint)
    memory = []

    async def run():
        store = SqliteStore(tmp_path / "answers.db")
        simulator = Simulator(settings, store)
        await answer_all(simulator, range(-300, 0))
        gc.collect()
        memory.append(psutil.Process().memory_info().rss)
        outcome = await answer_all(simulator, range(2000))
        gc.collect()
        memory.append(psutil.Process().memory_info().rss)
        tasks_left = len(asyncio.all_tasks()) - 1
        kept = {entry["arguments"]["n"] for _, _, entry in store.entries()}
        metrics = simulator.metrics()
        await simulator.close()
        return outcome, tasks_left, kept, metrics

    (statuses, longest), tasks_left, kept, metrics = asyncio.run(run())
    assert statuses.total() == 2000 and set(statuses) <= {"ok", "service_unavailable"}
    assert statuses["service_unavailable"] < 40
    assert longest < DEADLINE_S
    assert tasks_left == 0
    assert len([n for n in kept if n >= 0]) == statuses["ok"]
    assert metrics["slca/sgls/calls"] == metrics["slca/sgls/ok"] + metrics["slca/sgls/service_unavailable"] == 2300
    assert metrics["slca/sgls/llm_retries"] > 200
    assert memory[1] - memory[0] < 20e6
