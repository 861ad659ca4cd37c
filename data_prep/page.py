"""One training row as a page of plain text for a person."""

import json
import re
from collections.abc import Mapping
from typing import Any

_TOOLS = re.compile(r"<tools>\n(.*?)\n?</tools>", re.DOTALL)
_CUT = 4000


def render(row: Mapping[str, Any]) -> str:
    """The messages of an SFT, RL or evaluation row, its gold calls and its identity.

    Control characters are shown as escapes, so that the text of a row cannot steer a terminal.
    """
    parts = [_message(message) for message in row.get("messages") or row.get("prompt") or []]
    truth = (row.get("reward_model") or {}).get("ground_truth") or {}
    if "gold_tool_calls" in truth:
        parts.append(f"--- gold calls, one step a line\n{_steps(truth['gold_tool_calls'])}")
    facts = {
        key: row[key] for key in ("uuid", "subset_name", "original_idx", "data_source", "agent_name") if row.get(key)
    }
    info = row.get("extra_info") or {}
    facts |= {key: value for key, value in info.items() if value is not None and key != "recorded_calls"}
    if facts:
        parts.append("--- row\n" + "\n".join(f"{key}: {value}" for key, value in facts.items()))
    return safe("\n\n".join(parts))


def safe(text: str) -> str:
    """The text with control characters, line breaks and tabs excepted, written as escapes."""
    return "".join(
        letter if letter in "\n\t" or letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def fenced(text: str) -> str:
    """The text as a Markdown code block that its own backticks cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _message(message: Mapping[str, Any]) -> str:
    content = str(message.get("content"))
    if message.get("role") == "system":
        content = _TOOLS.sub(_list_tools, content)
    return f"--- {message.get('role')}\n{_cut(content)}"


def _list_tools(match: re.Match[str]) -> str:
    """The tools by name and arguments instead of their schemas."""
    lines = []
    for line in match.group(1).splitlines():
        try:
            function = json.loads(line)["function"]
            lines.append(f"  {function['name']}({', '.join(function['parameters'].get('properties', {}))})")
        except (ValueError, TypeError, KeyError, AttributeError):
            lines.append(f"  {line[:200]}")
    return "<tools>\n" + "\n".join(lines) + "\n</tools>"


def _steps(gold: str) -> str:
    try:
        return "\n".join(json.dumps(step, ensure_ascii=False) for step in json.loads(gold)) or "none"
    except (ValueError, TypeError):
        return str(gold)


def _cut(text: str) -> str:
    if len(text) <= _CUT:
        return text
    half = _CUT // 2
    return f"{text[:half]}\n[... {len(text) - _CUT} characters ...]\n{text[-half:]}"
