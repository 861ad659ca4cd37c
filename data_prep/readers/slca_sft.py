"""The released SFT files: one column `conversations` of `{from, value}`, everything already in our text format.

Texts are taken over as they are. Only a call block that is a Python literal is written anew as JSON, since
no parser of the rollout would read it.
"""

from collections.abc import Mapping
from typing import Any

from data_prep.conversation import Conversation
from data_prep.json_text import loads_json_or_literal
from data_prep.readers.chat_text import declared_tools, read_turns
from data_prep.reasons import Unusable
from data_prep.tools import ToolReader

NAME = "slca-sft"
DESCRIPTION = "released SFT"
COLUMNS = ("conversations",)
DISTINCTIVE = {"conversations"}
_ROLES = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


def read(row: Mapping[str, Any], tool_reader: ToolReader) -> Conversation:
    """Read one row. Raises `Unusable`."""
    turns = _turns(row.get("conversations"))
    system = next((text for role, text in turns if role == "system"), "")
    messages = read_turns([(role, text) for role, text in turns if role != "system"])
    tools = declared_tools(system, tool_reader)
    if tools is None:
        raise Unusable("no_tools")
    calls = any(message.calls for message in messages)
    return Conversation("", "tool_call" if calls else "irrelevant", messages, tools, system=system)


def _turns(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, str):
        try:
            value = loads_json_or_literal(value) if value.strip() else []
        except ValueError as error:
            raise Unusable("unparseable_messages") from error
    if not value:
        raise Unusable("empty_messages")
    if not isinstance(value, list):
        raise Unusable("unparseable_messages")
    return [_turn(turn) for turn in value]


def _turn(turn: Any) -> tuple[str, str]:
    speaker, text = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
    if not isinstance(speaker, str) or speaker not in _ROLES or not isinstance(text, str):
        raise Unusable("unparseable_messages")
    return _ROLES[speaker], text
