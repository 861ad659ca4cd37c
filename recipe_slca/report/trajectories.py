"""Write the trajectory page: one HTML file with everything in it, which loads nothing and works from disk.

Texts of rollouts reach the browser as JSON inside `<script type="application/json">`, one element a group,
read only when its group is opened. Nothing of them is ever HTML: the page sets text, and its content
security policy runs no script but its own.
"""

import base64
import hashlib
import html
import json
import os
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from recipe_slca.report.rollout_dump import Dump, Group

_UNSAFE_IN_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_QUESTION_IN_LIST = 240


def write_page(dump: Dump, output: Path) -> None:
    """Write the page. The file appears whole or not at all."""
    script = "\n".join(_part(name) for name in ("rollout.js", "page.js"))
    style = _part("page.css")
    name = dump.run_dir.resolve().name.encode("utf-8", "replace").decode()
    page = Template(_part("page.html")).substitute(
        title=html.escape(name),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        index=to_embedded_json(_index(dump, name)),
        groups="<!-- groups -->",
    )
    before, _, after = page.rpartition("<!-- groups -->")
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.unfinished")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.write(before)
        for position, group in enumerate(dump.groups):
            data = to_embedded_json({**group.task, "rollouts": group.rollouts})
            file.write(f'<script type="application/json" id="group-{position}">{data}</script>\n')
        file.write(after)
    os.replace(unfinished, output)


def to_embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or the JSON line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.translate(_UNSAFE_IN_SCRIPT)
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _index(dump: Dump, name: str) -> dict[str, Any]:
    """What the list, the filters and the chart need of every rollout, without its texts."""
    tools = sorted({tool for group in dump.groups for rollout in group.rollouts for tool in rollout["tools"]})
    tool_numbers = {tool: number for number, tool in enumerate(tools)}
    advantages = [
        abs(run["advantage"])
        for group in dump.groups
        for rollout in group.rollouts
        for run in rollout["runs"]
        if isinstance(run["advantage"], float)
    ]
    return {
        "name": name,
        "notes": dump.notes(),
        "tools": tools,
        "largestAdvantage": max(advantages, default=0.0),
        "groups": [_group_entry(group, tool_numbers) for group in dump.groups],
    }


def _group_entry(group: Group, tool_numbers: dict[str, int]) -> dict[str, Any]:
    return {
        "step": group.step,
        "validate": group.validate,
        "name": group.name,
        "question": group.task["question"][:_QUESTION_IN_LIST],
        "rollouts": [
            {
                "success": rollout["success"],
                "ended": rollout["ended"],
                "tools": [tool_numbers[tool] for tool in rollout["tools"]],
                "toolReward": rollout["toolReward"],
                "summaryReward": rollout["summaryReward"],
            }
            for rollout in group.rollouts
        ],
    }
