"""A deterministic judge for tests and the demo: does the reply quote what the tools answered?"""

import hashlib
import json
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from recipe_slca.hierr.grades import Grade, score_of
from recipe_slca.settings import JudgeSettings
from recipe_slca.sgls.chat_tokens import has_chat_tokens
from recipe_slca.tool_calls import loads

_WORD = re.compile(r"\w+(?:[.:/-]\w+)*")


class RuleJudge:
    """Grades by rule, the same way every time.

    very poor: empty, or with call markup or chat tokens, or a bare JSON value; poor: quotes no tool response;
    acceptable: quotes some of them; good: quotes every one; excellent: quotes every one and ends as a
    sentence. A response is quoted when one of its values stands in the reply as a word of its own; values
    that the question already holds do not count, unless there are no others. One without values needs no quote.

    With `noise_std`, Gaussian noise is added to study how a noisy judge contaminates credit. It depends on
    `noise_seed` and the graded texts alone, so the order of grading does not matter, and it may push a
    score out of [0, 1].
    """

    def __init__(self, settings: JudgeSettings | None = None):
        self._settings = settings or JudgeSettings(kind="rule")
        self._graded = 0

    async def grade(self, question: str, tool_responses: Sequence[str], reply: str) -> Grade:
        """Grade at once; never fails."""
        self._graded += 1
        score = score_of(_rule_grade(question, tool_responses, reply))
        if self._settings.noise_std:
            score += self._noise(question, tool_responses, reply) * self._settings.noise_std
        return Grade(score)

    def metrics(self) -> dict[str, float]:
        """graded: verdicts given."""
        return {"graded": float(self._graded)}

    async def close(self) -> None:
        """Nothing to give back."""

    def _noise(self, question: str, tool_responses: Sequence[str], reply: str) -> float:
        texts = json.dumps([self._settings.noise_seed, question, list(tool_responses), reply])
        return random.Random(hashlib.sha256(texts.encode()).digest()).gauss(0, 1)


def _rule_grade(question: str, tool_responses: Sequence[str], reply: str) -> str:
    text = reply.strip()
    if not text or has_chat_tokens(text) or _is_json(text):
        return "very poor"
    said = _words(text)
    asked = _words(question)
    quoted = [_quotes(said, response, asked) for response in tool_responses]
    if quoted and not any(quoted):
        return "poor"
    if not all(quoted):
        return "acceptable"
    return "excellent" if text[-1] in ".!?。！？" else "good"


def _quotes(said: str, response: str, asked: str) -> bool:
    values = [value for value in map(_words, _values(response)) if value.strip()]
    telling = [value for value in values if value not in asked] or values
    return not values or any(value in said for value in telling)


def _values(response: str) -> Iterator[str]:
    """The single values inside a JSON response (its words when it is plain text), as written."""
    try:
        pending: list[Any] = [loads(response)]
    except ValueError:
        yield from _WORD.findall(response)
        return
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif value is not None and not isinstance(value, bool):
            yield str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _words(text: str) -> str:
    """Lower-case words between single spaces, so that a search finds whole words only."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def _is_json(text: str) -> bool:
    if text[0] not in "[{":
        return False
    try:
        loads(text)
    except ValueError:
        return False
    return True
