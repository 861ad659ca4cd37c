"""Keep text that is data from acting as markup: in a prompt, and in an observation."""

import json
import re
from typing import Any

from recipe_slca.sgls.observation import well_formed

_CHAT_TOKENS = re.compile(
    r"</?(?:tool_calls?|tool_responses?|think|thinking|tools|s|start_of_turn|end_of_turn|bos|eos|pad)>"
    r"|<\|[^<>|\s]{1,64}\|>|<｜[^<>]{1,64}｜>"
    r"|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)\]|<</?SYS>>",
    re.IGNORECASE,
)
_BRACKETED_WORD = re.compile(r"\[(?=/?[A-Z][A-Z_]*\])")


def has_chat_tokens(text: str) -> bool:
    """Whether a text holds a tag of the call format or a token of a chat template."""
    return _CHAT_TOKENS.search(text) is not None


def data_block(mark: str, value: Any) -> str:
    """A JSON value between `<mark>` and `</mark>`, which nothing inside can close.

    Inside JSON a `<` stands only in strings, where it is written as an escape; the same holds for the
    bracketed words of some chat templates, such as `[INST]`.
    """
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    return f"<{mark}>\n{well_formed(_BRACKETED_WORD.sub(lambda _: chr(92) + 'u005b', text))}\n</{mark}>"
