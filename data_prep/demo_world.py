"""A small closed world of tools, as rows in Toucan's Kimi-K2 layout: data for the demo and the tests.

    python -m data_prep.demo_world --output clean.parquet --conversations 500 --seed 1
    python -m data_prep.demo_world --output teacher.parquet --conversations 2000 --seed 2 --imperfect 0.5

Every task has one right dialogue, and every tool is a small deterministic function (`demo_tools`).
`--imperfect` makes a share of the demonstrations imperfect, as teacher data is: a call repeated, a wrong tool
tried first, an optional argument that the question asks for left out. The calls stay valid.
"""

import argparse
import json
import random
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.demo_tools import BY_NAME, CHAINS, DIGITS, TOOLS, Arguments, Tool

CHAT = (
    ("Hello!", "Hello! How can I help?"),
    ("Thank you!", "You are welcome."),
    ("Who are you?", "I am an assistant with tools."),
    ("Good night!", "Good night."),
    ("Tell me a joke.", "I know no jokes, sorry."),
)
KINDS = {"single": 0.3, "parallel": 0.2, "serial": 0.15, "serial_parallel": 0.1, "multi_turn": 0.15, "irrelevant": 0.1}
IMPERFECTIONS = ("repeated_call", "wrong_tool", "missing_argument")

Call = tuple[Tool, Arguments]


@dataclass
class Turn:
    """One user turn: the question, the steps of calls that answer it, and the reply."""

    question: str
    steps: list[list[Call]]
    reply: str


def _task(calls: list[Call], widths: tuple[int, ...], rng: random.Random) -> Turn:
    """A turn whose calls are asked for in steps: "and" joins parallel calls, "then" the steps."""
    remaining = iter(calls)
    steps = [[next(remaining) for _ in range(width)] for width in widths]
    asked = [" and ".join(_lower(tool.ask(arguments)) for tool, arguments in step) for step in steps]
    reply = " ".join(tool.tell(arguments) for tool, arguments in calls)
    return Turn(_sentence(", then ".join(asked), rng), steps, reply)


def _chain(rng: random.Random) -> Turn:
    """Two calls, the second of which takes a number from the first one's answer."""
    first_name, key, second_name, question = rng.choice(CHAINS)
    first, second = BY_NAME[first_name], BY_NAME[second_name]
    while True:
        arguments = {name: first.draw(rng)[name] for name in first.required}
        found = first.answer(arguments)[key]
        if found in DIGITS:
            break
    other = rng.choice(DIGITS)
    following = {"a": found, "b": other}
    reply = f"{first.tell(arguments)} {second.tell(following)}"
    asked = _sentence(_lower(question.format(**arguments, other=other)), rng)
    return Turn(asked, [[(first, arguments)], [(second, following)]], reply)


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _sentence(text: str, rng: random.Random) -> str:
    text = f"please {text}" if rng.random() < 0.3 else text
    return text[0].upper() + text[1:] + "."


def _calls(tools: list[Tool], count: int, rng: random.Random) -> list[Call]:
    """So many calls of these tools, no two alike."""
    calls: list[Call] = []
    while len(calls) < count:
        tool = rng.choice(tools)
        call = (tool, tool.draw(rng))
        if call not in calls:
            calls.append(call)
    return calls


def _dialogue(kind: str, rng: random.Random) -> tuple[list[Turn], list[Tool]]:
    """The turns of one dialogue of this kind, and the two or three tools that it offers."""
    offered = rng.sample(TOOLS, rng.choice((2, 2, 3)))
    if kind == "single":
        return [_task(_calls(offered, 1, rng), (1,), rng)], offered
    if kind == "parallel":
        return [_task(_calls(offered, 2, rng), (2,), rng)], offered
    if kind == "serial_parallel":
        return [_task(_calls(offered, 3, rng), rng.choice(((2, 1), (1, 2))), rng)], offered
    if kind == "serial":
        if rng.random() < 0.5:
            return [_task(_calls(offered, 2, rng), (1, 1), rng)], offered
        turn = _chain(rng)
        needed = [call[0] for step in turn.steps for call in step]
        return [turn], rng.sample(needed, 2)
    if kind == "multi_turn":
        widths = rng.choice(((1, 1), (1, 2), (2, 1)))
        return [_task(_calls(offered, width, rng), (width,), rng) for width in widths], offered
    if rng.random() < 0.4:
        said, reply = rng.choice(CHAT)
        return [Turn(said, [], reply)], offered
    missing = rng.choice([tool for tool in TOOLS if tool not in offered])
    return [Turn(_sentence(missing.ask(missing.draw(rng)), rng), [], "I have no tool for that.")], offered


def _spoil(turn: Turn, offered: list[Tool], rng: random.Random) -> tuple[Turn, str]:
    """The same turn demonstrated imperfectly, and how; every call still passes its schema."""
    ways = list(IMPERFECTIONS)
    optional = [
        (at, place, name)
        for at, step in enumerate(turn.steps)
        for place, (tool, arguments) in enumerate(step)
        for name in arguments
        if name not in tool.required
    ]
    others = [tool for tool in offered if all(tool is not call[0] for call in turn.steps[0])]
    if not optional:
        ways.remove("missing_argument")
    if not others:
        ways.remove("wrong_tool")
    way = rng.choice(ways)
    steps = [list(step) for step in turn.steps]
    if way == "repeated_call":
        steps.insert(1, [steps[0][0]])
    elif way == "wrong_tool":
        tool = rng.choice(others)
        steps.insert(0, [(tool, tool.draw(rng))])
    else:
        at, place, name = rng.choice(optional)
        tool, arguments = steps[at][place]
        steps[at][place] = (tool, {key: value for key, value in arguments.items() if key != name})
    return Turn(turn.question, steps, turn.reply), way


def _row(
    number: int, kind: str, fault: str, turns: list[Turn], offered: list[Tool], rng: random.Random
) -> dict[str, str]:
    """The nine string columns of one dialogue, as the Kimi-K2 config of Toucan has them."""
    tools = json.dumps([tool.schema for tool in offered])
    messages = [_message("system", f"<|im_system|>tool_declare<|im_middle|>{tools}<|im_end|>")]
    for turn in turns:
        messages.append(_message("user", turn.question))
        for step in turn.steps:
            for tool, arguments in step:
                call = {"name": tool.full_name, "arguments": json.dumps(arguments)}
                messages.append({**_message("assistant", ""), "function_call": call})
            for tool, arguments in step:
                answer = json.dumps(tool.answer(arguments))
                messages.append({**_message("function", answer), "name": tool.full_name})
        messages.append(_message("assistant", turn.reply))
    names = {tool.name: None for turn in turns for step in turn.steps for tool, _ in step}
    subset = {"multi_turn": "multi-turn", "irrelevant": "irrelevant"}.get(kind, "single-turn-original")
    scores = {"completeness": {"reasoning": "", "score": 5}, "overall_score": 5.0}
    return {
        "uuid": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "subset_name": subset,
        "messages": json.dumps(messages),
        "question": turns[0].question,
        "available_tools": tools,
        "target_tools": ",".join(names),
        "question_quality_assessment": json.dumps({"overall_score": 5.0}),
        "response_quality_assessment": "" if kind == "irrelevant" else json.dumps(scores),
        "metadata": json.dumps({"prompt_id": number, "kind": kind, "fault": fault}),
    }


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _in_fold(turns: list[Turn], fold: tuple[int, int]) -> bool:
    """Whether every question of a dialogue belongs to fold K of N, by its text alone."""
    questions = [turn.question.lower().removeprefix("please ") for turn in turns]
    return all(zlib.crc32(question.encode()) % fold[1] == fold[0] - 1 for question in questions)


def rows(
    conversations: int,
    seed: int,
    imperfect: float = 0.0,
    fold: tuple[int, int] = (1, 1),
    kinds: dict[str, float] = KINDS,
) -> Iterator[dict[str, str]]:
    """Rows in Toucan's Kimi-K2 layout.

    imperfect: share in [0, 1] of the dialogues with calls that are demonstrated imperfectly.
    kinds: weights of the kinds of dialogue, names as in `KINDS`.
    fold: (K, N): only dialogues of fold K of N; different folds of the same N share no questions.
    """
    rng = random.Random(seed)
    for number in range(conversations):
        (kind,) = rng.choices(list(kinds), kinds.values())
        turns, offered = _dialogue(kind, rng)
        while not _in_fold(turns, fold):
            turns, offered = _dialogue(kind, rng)
        fault = "none"
        if kind != "irrelevant" and rng.random() < imperfect:
            spoiled = [_spoil(turn, offered, rng) for turn in turns]
            turns, fault = [turn for turn, _ in spoiled], spoiled[0][1]
        yield _row(number, kind, fault, turns, offered, rng)


def _kinds(text: str) -> dict[str, float]:
    kinds = {name: float(weight) for name, _, weight in (part.partition("=") for part in text.split(","))}
    unknown = kinds.keys() - KINDS.keys()
    if unknown or min(kinds.values()) < 0 or not sum(kinds.values()):
        raise ValueError(f"use positive weights of {', '.join(KINDS)}")
    return kinds


def main(arguments: list[str] | None = None) -> None:
    """Write one parquet file of demo rows."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.demo_world", description="Write demo rows in Toucan's Kimi-K2 layout."
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--conversations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--imperfect", type=float, default=0.0, metavar="SHARE", help="share demonstrated imperfectly")
    parser.add_argument("--fold", default="1/1", metavar="K/N", help="only questions of fold K of N; folds share none")
    parser.add_argument(
        "--kinds",
        metavar="KIND=WEIGHT,...",
        help="kinds of dialogue to draw (default "
        + ",".join(f"{name}={weight}" for name, weight in KINDS.items())
        + ")",
    )
    options = parser.parse_args(arguments)
    try:
        kinds = _kinds(options.kinds) if options.kinds else KINDS
    except ValueError as error:
        parser.error(f"--kinds {options.kinds}: {error}")
    try:
        part, parts = map(int, options.fold.split("/"))
    except ValueError:
        part = parts = 0
    if not 1 <= part <= parts:
        parser.error(f"--fold {options.fold}: use K/N with 1 <= K <= N, such as 1/3")
    if not 0 <= options.imperfect <= 1:
        parser.error(f"--imperfect {options.imperfect}: use a share from 0 to 1")
    if options.conversations < 1:
        parser.error(f"--conversations {options.conversations}: use at least 1")
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn = rows(options.conversations, options.seed, options.imperfect, (part, parts), kinds)
    table = pa.Table.from_pylist(list(drawn))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, options.output, compression="zstd", row_group_size=1000)
    print(f"{options.output}: {table.num_rows} conversations")


if __name__ == "__main__":
    main()
