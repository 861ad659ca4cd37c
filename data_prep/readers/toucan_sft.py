"""Toucan-1.5M, config SFT: six columns, calls and responses as messages of the roles tool_call and tool_response.

A call's content is a Python literal that holds its arguments as a JSON string.
"""

from collections.abc import Mapping
from typing import Any

from data_prep.conversation import Conversation
from data_prep.json_text import loads_json_or_literal
from data_prep.readers.toucan import join_turns, read_messages, text_of
from data_prep.reasons import Unusable
from data_prep.tools import ToolReader

NAME = "toucan-sft"
DESCRIPTION = "Toucan SFT"
COLUMNS = ("uuid", "subset_name", "messages", "tools")
DISTINCTIVE = {"messages", "tools"}


def read(row: Mapping[str, Any], tool_reader: ToolReader) -> Conversation:
    """Read one row. Raises `Unusable`."""
    return Conversation(
        identity=str(row.get("uuid") or ""),
        subset=str(row.get("subset_name") or ""),
        messages=join_turns([_as_function_message(message) for message in read_messages(row.get("messages"))]),
        tools=tool_reader.read(row.get("tools")),
    )


def _as_function_message(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool_response":
        return {"role": "function", "content": text_of(message)}
    if message["role"] != "tool_call":
        return dict(message)
    try:
        call = loads_json_or_literal(text_of(message))
    except ValueError as error:
        raise Unusable("unparseable_arguments") from error
    return {"role": "assistant", "content": "", "function_call": call}
