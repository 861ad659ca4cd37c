"""Writes rollout dumps and training logs like those of a run, scored by the project's own rewards."""

import asyncio
import json
import random
import statistics
from pathlib import Path
from typing import Any

from recipe_slca.hierr.hierr import HierR, RewardScore
from recipe_slca.settings import JudgeSettings, Settings
from recipe_slca.tool_calls import ToolCall, render
from recipe_slca.trajectory import Trajectory

GROUP_SIZE = 16
PROCESS_TERMS = ("format", "name", "key", "value", "parallel")

HOSTILE = [
    "<script>window.wasRun = true</script>",
    "</script><script>window.wasRun = true</script>",
    "<!--<script>",
    '<img src=x onerror="window.wasRun = true">',
    "]]></style></textarea><svg onload='window.wasRun = true'>",
    "line\u2028separator\u2029here",
    "half a pair \ud83d and \udc00 alone",
    "null \x00 bell \x07 back \u202e txet",
    "$title ${style} {{ 7 * 7 }} `${window.wasRun = true}` &lt;b&gt; &amp;",
    "\\u003cscript\\u003e \\ \" ' \U0001f30d",
]

TASKS = [
    (
        "What is the weather in {city} now, and what will it be tomorrow?",
        [
            [
                ("weather-current", {"city": "{city}", "units": "metric"}),
                ("weather-forecast", {"city": "{city}", "days": 1}),
            ]
        ],
    ),
    (
        "Book a table for {n} in {city} on Friday at 19:30, then put it into my calendar.",
        [
            [("dining-book_table", {"city": "{city}", "guests": "{n}", "time": "2026-03-06T19:30:00"})],
            [("calendar-add_event", {"title": "Dinner in {city}", "start": "2026-03-06T19:30:00", "minutes": 120})],
        ],
    ),
    (
        "Convert {n}00 euros to Norwegian kroner and tell me what the same costs in {city}.",
        [[("currency-convert", {"amount": "{n}00", "from": "EUR", "to": "NOK"})]],
    ),
    (
        "Find order 900719925474099{n} and tell me when it reaches {city}.",
        [[("orders-get_order", {"order_id": "{id}"})]],
    ),
    ("Thanks, that is all. How do you say goodbye in the language of {city}?", []),
]
_REWARDS = HierR(Settings(judge=JudgeSettings(kind="rule", noise_std=0.2)))
CITIES = ["Oslo", "Łódź", "São Paulo", "東京", "Nairobi", "Reykjavík", "دمشق"]
TOOLS = sorted({name for _, steps in TASKS for step in steps for name, _ in step} | {"search-web"})
ENDINGS = ["replied"] * 12 + ["turn_limit", "response_full", "call_limit", "aborted"]


def write_dump(run_dir: Path, groups: int, steps: int = 2, seed: int = 0, hostile: bool = True) -> None:
    """Write `groups` groups of 16 rollouts over `steps` files; with `hostile`, every seventh text is an attack."""
    folder = run_dir / "slca_rollouts"
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    for step_number in range(steps):
        step = 10 * (step_number + 1)
        lines = []
        for group in range(step_number, groups, steps):
            lines += make_group(chance, step, f"{chance.getrandbits(64):016x}-{group}", hostile)
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_group(chance: random.Random, step: int, name: str, hostile: bool = True, size: int = GROUP_SIZE) -> list[dict]:
    """The dump's objects of one group."""
    question, gold = _task(chance)
    prompt = [
        {
            "role": "system",
            "content": "Reason in <think>, call tools in <tool_call>.\n<tools>\n"
            + "\n".join(_schema(t) for t in TOOLS),
        },
        {"role": "user", "content": question},
    ]
    rollouts = []
    trajectories = []
    for _ in range(size):
        turns, ended = _turns(chance, gold, hostile)
        trajectories.append({"question": question, "turns": turns, "ended": ended})
    for number, (trajectory, score) in enumerate(zip(trajectories, _scores(trajectories, gold), strict=True)):
        rollouts.append(
            {
                "format": "slca-rollouts/1",
                "step": step,
                "validate": False,
                "estimator": "slca",
                "group": name,
                "rollout": number,
                "prompt": prompt,
                "question": question,
                "gold_calls": gold,
                "task": {"parallel_type": "single_step_parallel", "source": "native_single_turn", "original_idx": step},
                "trajectory": trajectory,
                "tool_reward": score.tool_reward,
                "summary_reward": score.summary_reward,
                "turn_rewards": score.turn_rewards,
                "metrics": score.metrics,
                "runs": _runs(trajectory["turns"]),
                "prompt_ids": [1, 2, 3],
                "response_ids": [4, 5, 6],
                "response_mask": [1, 1, 1],
            }
        )
    _add_advantages(rollouts)
    return rollouts


def _scores(trajectories: list[dict], gold: list) -> list[RewardScore]:
    async def score_all() -> list[RewardScore]:
        return [await _REWARDS.score(Trajectory.from_dict(one), gold, TOOLS) for one in trajectories]

    return asyncio.run(score_all())


def write_log(path: Path, seed: int, steps: int = 60, gain: float = 0.4, start: float = 0.3) -> None:
    """Write a training log as verl's file logger does, with a rising success and a falling number of turns."""
    chance = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for step in range(1, steps + 1):
            done = step / steps
            level = start + gain * done + chance.gauss(0, 0.03)
            data = {
                f"slca/success@{at}": level * share
                for at, share in (("0.7", 1.3), ("0.8", 1.15), ("0.9", 1.0), ("1.0", 0.8))
            }
            data |= {"slca/tool_turns": 3.4 - 2 * gain * done + chance.gauss(0, 0.1), "slca/calls": 4 - gain * done}
            data |= {f"slca/reward/{name}/mean": level + 0.1 for name in ("tool", "summary", "process", *PROCESS_TERMS)}
            data |= {f"slca/zero_spread/{segment}": 0.3 * done for segment in ("tool", "summary")}
            data |= {f"slca/advantage/{segment}/std": 1 - 0.2 * done for segment in ("tool", "summary")}
            data |= {
                "slca/ungraded_share": 0.02,
                "slca/omission_share": 0.1 * (1 - done),
                "slca/ended/replied": 0.7 + 0.2 * done,
            }
            data |= {"actor/entropy": 1.2 - done, "training/global_step": step}
            file.write(json.dumps({"step": step, "data": data}) + "\n")


def _task(chance: random.Random) -> tuple[str, list[list[dict[str, Any]]]]:
    question, steps = chance.choice(TASKS)
    city, count = chance.choice(CITIES), chance.randint(2, 9)
    values = {"{city}": city, "{n}": count, "{n}00": 100 * count, "{id}": 9007199254740990 + count}
    gold = [
        [
            {"name": name, "arguments": {key: _filled(value, values, city) for key, value in arguments.items()}}
            for name, arguments in step
        ]
        for step in steps
    ]
    return question.format(city=city, n=count), gold


def _filled(value: Any, values: dict[str, Any], city: str) -> Any:
    return values.get(value, value.replace("{city}", city)) if isinstance(value, str) else value


def _turns(chance: random.Random, gold: list, hostile: bool) -> tuple[list[dict], str]:
    ended = chance.choice(ENDINGS)
    turns = []
    for step in gold if chance.random() > 0.06 else []:
        calls = [_maybe_wrong(chance, call) for call in step if chance.random() > 0.1]
        reasoning = (
            f"The user asks for {len(step)} thing(s). I will call {', '.join(call['name'] for call in step)} first."
        )
        text = f"<think>{reasoning} {_extra(chance, hostile)}</think>\n"
        if not calls:
            text += '<tool_call>\n[{"name": "search-web", "arguments": {"query": "weather"}\n</tool_call>'
            record = {
                "name": "",
                "arguments": {},
                "observation": "the block does not start with a JSON value",
                "status": "malformed_call",
                "source": "validation",
            }
            turns.append({"text": text, "calls": [record]})
            continue
        text += render([ToolCall(call["name"], call["arguments"]) for call in calls])
        turns.append({"text": text, "calls": [_answered(chance, call, hostile) for call in calls]})
    if ended in ("replied", "aborted") or not turns:
        reply = "Here is what I found: it is 4.5 °C with light rain, and tomorrow will be much the same."
        turns.append({"text": f"<think>Now I can answer.</think>\n{reply} {_extra(chance, hostile)}", "calls": []})
    return turns, ended


def _maybe_wrong(chance: random.Random, call: dict) -> dict:
    name, arguments = call["name"], dict(call["arguments"])
    fault = chance.random()
    if fault < 0.1:
        name = "search-web"
    elif fault < 0.25:
        arguments.pop(chance.choice(list(arguments)))
    elif fault < 0.4:
        arguments[chance.choice(list(arguments))] = "somewhere else"
    elif fault < 0.5:
        arguments["verbose"] = True
    return {"name": name, "arguments": arguments}


def _answered(chance: random.Random, call: dict, hostile: bool) -> dict:
    if chance.random() < 0.12:
        text = f"Error: missing_argument: {call['name']} needs `city`."
        return call | {"observation": text, "status": "missing_argument", "source": "validation"}
    if chance.random() < 0.03:
        return call | {"observation": "", "status": "service_unavailable", "source": "llm"}
    answer = {"ok": True, "order_id": 9007199254740993, "temperature_c": 4.5, "note": _extra(chance, hostile)}
    return call | {
        "observation": json.dumps(answer),
        "status": "ok",
        "source": chance.choice(["llm", "cache", "replay"]),
    }


def _extra(chance: random.Random, hostile: bool) -> str:
    return chance.choice(HOSTILE) if hostile and chance.random() < 1 / 7 else ""


def _runs(turns: list[dict]) -> list[dict]:
    runs = []
    for position, turn in enumerate(turns):
        is_last = position == len(turns) - 1
        runs.append({"kind": "summary" if is_last else "tool", "text": turn["text"]})
        if not is_last:
            runs.append({"kind": "observation", "text": "\n".join(call["observation"] for call in turn["calls"])})
    return [run | {"tokens": max(1, len(run["text"]) // 4), "advantage": None} for run in runs]


def _add_advantages(rollouts: list[dict]) -> None:
    for kind in ("tool", "summary"):
        rewards = [rollout[f"{kind}_reward"] for rollout in rollouts if rollout[f"{kind}_reward"] is not None]
        mean = statistics.fmean(rewards) if rewards else 0.0
        spread = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
        for rollout in rollouts:
            reward = rollout[f"{kind}_reward"]
            advantage = 0.0 if reward is None or not spread else (reward - mean) / (spread + 1e-6)
            for run in rollout["runs"]:
                if run["kind"] == kind:
                    run["advantage"] = advantage


def _schema(tool: str) -> str:
    return json.dumps({"type": "function", "function": {"name": tool, "parameters": {"type": "object"}}})
