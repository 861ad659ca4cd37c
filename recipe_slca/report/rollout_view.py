"""What the page shows of one line of the dump: plain values, long texts cut, arguments laid out as JSON.

Laying out happens here and not in the browser, because a browser would round large whole numbers.
"""

import json
import math
from typing import Any

from recipe_slca import tool_calls
from recipe_slca.report import gold_view
from recipe_slca.report.cutting import TEXT_LIMIT, Cutter, name
from recipe_slca.tool_calls import MALFORMED_REASONS, ParsedTurn
from recipe_slca.trajectory import CallRecord, Trajectory, TurnRecord

PROCESS_TERMS = ("format", "name", "key", "value", "parallel")
_SUCCESS = "success_0.9"
_SHOWN_ELSEWHERE = {*PROCESS_TERMS, "process", _SUCCESS, "tool_reward", "summary_reward"}


def view_task(fields: dict[str, Any]) -> dict[str, Any]:
    """What the rollouts of a group share: question, prompt, and where the task comes from."""
    cutter = Cutter()
    task = {"estimator": fields["estimator"], **(fields["task"] or {})}
    return {
        "question": cutter.text(fields["trajectory"]["question"]),
        "prompt": [
            {"role": str(message["role"]), "text": cutter.text(_content(message["content"]))}
            for message in cutter.items_of(fields["prompt"])
        ],
        "task": {name(key): name(str(value)) for key, value in task.items() if value is not None},
        "cut": _cut(cutter),
    }


def view_rollout(fields: dict[str, Any], place: str) -> dict[str, Any]:
    """One rollout. `place` is its file and line, named where something is cut.

    Raises KeyError, TypeError, ValueError or AttributeError when a field is missing or of another type.
    """
    cutter = Cutter()
    trajectory = Trajectory.from_dict(fields["trajectory"])
    metrics = fields["metrics"]
    parsed = [tool_calls.parse(turn.text) for turn in trajectory.turns]
    turns = [_turn(turn, parse, cutter) for turn, parse in zip(cutter.items_of(trajectory.turns), parsed, strict=False)]
    runs = [_run(run, cutter) for run in cutter.items_of(fields["runs"])]
    gold, is_as_scored = gold_view.compare(
        fields["gold_calls"], [turn.text for turn in trajectory.turns], metrics, cutter
    )
    written_runs = [index for index, run in enumerate(runs) if run["kind"] != "observation"]
    return {
        "place": place,
        "number": int(fields["rollout"]),
        "ended": name(trajectory.ended),
        "success": None if metrics.get(_SUCCESS) is None else bool(metrics[_SUCCESS]),
        "tools": sorted({name(call.name) for call in trajectory.calls if call.name}),
        "toolReward": number(fields["tool_reward"]),
        "summaryReward": number(fields["summary_reward"]),
        "process": number(metrics.get("process")),
        "terms": {term: number(metrics.get(term)) for term in PROCESS_TERMS},
        "metrics": {
            name(metric): number(value)
            for metric, value in metrics.items()
            if metric not in _SHOWN_ELSEWHERE and not metric.startswith("ended_")
        },
        "calls": len(trajectory.calls),
        "turns": turns,
        "turnRewards": [number(value) for value in fields["turn_rewards"][: len(turns)]],
        # A turn is tinted by the run of the mask that holds its tokens; without one run a turn, by none.
        "turnRuns": written_runs if len(written_runs) == len(turns) else [],
        "runs": runs,
        "gold": gold,
        "goldAsScored": is_as_scored,
        "cut": _cut(cutter),
    }


def number(value: Any) -> float | str | None:
    """A number for JSON: rounded to what can be seen, and NaN or infinity by name, which JSON cannot hold."""
    if value is None:
        return None
    value = float(value)
    return round(value, 6) if math.isfinite(value) else str(value)


def lay_out(value: Any) -> str:
    """A JSON value as indented text."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return json.dumps(value, ensure_ascii=False)  # the flat form nests deeper before it gives up


def _turn(turn: TurnRecord, parsed: ParsedTurn, cutter: Cutter) -> dict[str, Any]:
    unanswered = parsed.calls
    malformed = [block for block in parsed.blocks if block.error]
    calls = []
    # Each block or call of the turn has a record, in order; that of a malformed block has no name.
    for record in cutter.items_of(turn.calls):
        shown = _call(record, cutter)
        if record.name:
            unanswered = unanswered[1:]
        elif malformed:
            block, *malformed = malformed
            shown |= {"written": cutter.text(block.text), "reason": MALFORMED_REASONS[block.error]}
        calls.append(shown)
    for call in cutter.items_of(unanswered):
        calls.append(
            {"name": name(call.name), "arguments": cutter.text(lay_out(call.arguments)), "status": "not_executed"}
        )
    for block in cutter.items_of(malformed):
        reason = MALFORMED_REASONS[block.error]
        calls.append({"name": "", "status": "malformed_call", "written": cutter.text(block.text), "reason": reason})
    # A turn of stray tags alone has no part that could be shown by itself.
    content = parsed.content if parsed.reasoning or parsed.content or calls else turn.text.strip()
    return {"reasoning": cutter.text(parsed.reasoning), "content": cutter.text(content), "calls": calls}


def _run(run: dict[str, Any], cutter: Cutter) -> dict[str, Any]:
    return {
        "kind": name(run["kind"]),
        "tokens": int(run["tokens"]),
        "text": cutter.text(run["text"]),
        "advantage": number(run["advantage"]),
    }


def _call(record: CallRecord, cutter: Cutter) -> dict[str, Any]:
    observation = record.observation
    laid_out = _laid_out_if_json(observation)
    return {
        "name": name(record.name),
        "arguments": cutter.text(lay_out(record.arguments)),
        "status": name(record.status),
        "source": name(record.source),
        "observation": cutter.text(observation if laid_out is None else laid_out),
        "observationIsJson": laid_out is not None,
    }


def _laid_out_if_json(text: str) -> str | None:
    if len(text) > TEXT_LIMIT or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return lay_out(tool_calls.loads(text))
    except (ValueError, RecursionError):
        return None


def _content(content: Any) -> str:
    return content if isinstance(content, str) else lay_out(content)


def _cut(cutter: Cutter) -> dict[str, int]:
    return {"characters": cutter.characters, "items": cutter.items}
