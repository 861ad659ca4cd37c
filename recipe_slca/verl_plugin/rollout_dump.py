"""The rollout dump: what `python -m recipe_slca.report` and the gradient diagnostic read.

One JSON object a line and rollout, in RUN_DIR/slca_rollouts/<step>.jsonl and val_<step>.jsonl.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipe_slca import task
from recipe_slca.hierr.gold import read_gold
from recipe_slca.metrics import Estimator, RolloutRecord, turn_advantages
from recipe_slca.trajectory import Trajectory

FORMAT = "slca-rollouts/1"
FOLDER = "slca_rollouts"
_TASK_FIELDS = ("parallel_type", "source", "original_idx", "has_history")


def details(item: Any, trajectory: Trajectory, tokenizer: Any) -> dict[str, Any]:
    """The fields of a rollout that metrics do not need: prompt, gold calls, turns, tokens."""
    row = item.non_tensor_batch
    spans = row["tool_extra_fields"]["turn_spans"]
    response_ids = item.batch["responses"].tolist()
    mask = [0] * len(response_ids)
    for start, end in spans:
        mask[start:end] = [1] * (end - start)
    extra_info = row.get("extra_info") or {}
    return {
        "prompt": [{"role": message["role"], "content": message["content"]} for message in row["raw_prompt"]],
        "question": trajectory.question,
        "gold_calls": read_gold(task.ground_truth(row)["gold_tool_calls"]),
        "task": {name: _plain(extra_info[name]) for name in _TASK_FIELDS if name in extra_info},
        "trajectory": trajectory.to_dict(),
        "runs": _runs(response_ids, spans, tokenizer),
        "prompt_ids": item.batch["prompts"].tolist(),
        "response_ids": response_ids,
        "response_mask": mask,
    }


def write(
    path: Path,
    records: Sequence[RolloutRecord],
    shared: dict[str, Any],
    estimate: Estimator | None,
) -> None:
    """Write the records that have details; the file appears when it is complete.

    shared: fields of every line (step, validate, estimator). estimate: gives each turn its advantage; None
    leaves them null. Advantages are those of whole groups, so records without details count in them.
    """
    advantages = turn_advantages(records, estimate) if estimate else [None] * len(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        for record, of_turns in sorted(zip(records, advantages, strict=True), key=lambda p: (p[0].group, p[0].rollout)):
            if record.details is not None:
                # ASCII, because a policy can write lone surrogates, which UTF-8 cannot hold.
                file.write(json.dumps(_line(record, of_turns, shared)) + "\n")
    os.replace(unfinished, path)


def _line(record: RolloutRecord, of_turns: list[float] | None, shared: dict[str, Any]) -> dict[str, Any]:
    remaining = iter(of_turns or [])
    runs = [
        run | {"advantage": None if run["kind"] == "observation" else next(remaining, None)}
        for run in record.details["runs"]
    ]
    return {
        "format": FORMAT,
        **shared,
        "group": record.group,
        "rollout": record.rollout,
        **record.details,
        "tool_reward": record.tool_reward,
        "summary_reward": record.summary_reward,
        "turn_rewards": record.turn_rewards,
        "metrics": dict(record.scores),
        "runs": runs,
    }


def _runs(response_ids: list[int], spans: list[list[int]], tokenizer: Any) -> list[dict[str, Any]]:
    """The response as stretches of one kind, in order: tool turns, observations, the summary."""
    runs = []
    position = 0
    for number, (start, end) in enumerate(spans):
        if start > position:
            runs.append(("observation", position, start))
        runs.append(("summary" if number == len(spans) - 1 else "tool", start, end))
        position = end
    if position < len(response_ids):
        runs.append(("observation", position, len(response_ids)))
    return [
        {"kind": kind, "tokens": end - start, "text": tokenizer.decode(response_ids[start:end])}
        for kind, start, end in runs
    ]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
