"""Speed of the process reward on one core: `python tests/benchmarks/bench_hierr.py`."""

import json
import time
from collections.abc import Callable
from typing import Any

from recipe_slca.hierr.process import score_process
from recipe_slca.settings import ProcessSettings
from recipe_slca.tool_calls import ToolCall, parse, render

SECONDS = 1.0


def trajectory(calls: int, calls_in_a_turn: int = 2) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Turn texts and gold steps of a rollout with `calls` calls of four arguments, every third value wrong."""
    gold = [
        {
            "name": f"server-{number % 3}-lookup",
            "arguments": {
                "city": f"City {number}",
                "days": number,
                "units": "metric",
                "options": {"a": [1, 2, number]},
            },
        }
        for number in range(calls)
    ]
    made = [
        ToolCall(call["name"], {**call["arguments"], "days": "9" if number % 3 == 0 else str(number)})
        for number, call in enumerate(gold)
    ]
    starts = range(0, calls, calls_in_a_turn)
    turns = [f"<think>Look it up.</think>\n{render(made[start : start + calls_in_a_turn])}" for start in starts]
    steps = [gold[start : start + calls_in_a_turn] for start in starts]
    return [*turns, "The weather will be fine in all of these cities."], steps


def run() -> list[dict[str, Any]]:
    """Rollouts scored a second. The peer does what no scorer can leave out: parse the same turns, read the gold."""
    rows = []
    for calls in (1, 5, 20):
        turns, gold = trajectory(calls)
        gold_text = json.dumps(gold)
        tools = frozenset(call["name"] for step in gold for call in step)
        peer = _rate(lambda turns=turns, text=gold_text: ([parse(turn) for turn in turns], json.loads(text)))
        for assignment in ("greedy", "optimal"):
            settings = ProcessSettings(assignment=assignment)
            ours = _rate(
                lambda turns=turns, text=gold_text, settings=settings, tools=tools: score_process(
                    turns, json.loads(text), tools, settings
                )
            )
            what = f"process reward, {calls} calls, {assignment} (peer: parsing alone)"
            rows.append({"what": what, "ours": ours, "peer": peer, "ratio": ours / peer, "unit": "rollouts/s"})
    return rows


def _rate(work: Callable[[], Any]) -> float:
    work()
    done = 0
    start = time.process_time()
    while (spent := time.process_time() - start) < SECONDS:
        for _ in range(20):
            work()
        done += 20
    return done / spent


if __name__ == "__main__":
    for row in run():
        print(f"{row['what']:<60} {row['ours']:>9.0f} {row['peer']:>9.0f} {row['unit']}  x{row['ratio']:.2f}")
