"""Tool lists in every published spelling, read into one form.

A tool is written as `{"type": "function", "function": {"name", "description", "parameters"}}`, with the schema of
its answers where it declares one. Sources also have bare objects, `input_schema` for `parameters`, null
parameters, one object for a list, and JSON strings of any of these.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from data_prep.json_text import loads_exactly, to_json
from data_prep.reasons import Unusable
from data_prep.text_cache import TextCache
from recipe_slca.sgls.schema_cost import MAX_ARGUMENT_DEPTH
from recipe_slca.sgls.schema_validator import SchemaValidator, compile_schema, deeper_than
from recipe_slca.sgls.tools import OUTPUT_KEYS, canonical_json
from recipe_slca.tool_calls import ToolCall

NO_PARAMETERS = {"type": "object", "properties": {}}
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")


@dataclass(frozen=True)
class ToolList:
    """The tools of a row.

    lines: each tool's JSON text by tool name, in order; none holds a line break. text: all lines. digest: of
    the text.
    """

    lines: dict[str, str]
    text: str
    digest: str

    @property
    def names(self) -> Collection[str]:
        """The names of the tools, in order."""
        return self.lines.keys()

    def verdict(self, call: ToolCall) -> str | None:
        """None when the call passes its tool's schema, as the simulator judges it in rollouts, else what is amiss.

        `invalid_arguments`, or `broken_tool_schema`: the schema itself cannot be used, so that every call passes.
        The tool must be among these. Raises `Unusable("nested_too_deeply")`.
        """
        nested = any([isinstance(value, dict | list) for value in call.arguments.values()])
        if nested and deeper_than(call.arguments, MAX_ARGUMENT_DEPTH):
            raise Unusable("nested_too_deeply")
        validator = _validator(self.lines[call.name])
        if validator.broken:
            return "broken_tool_schema"
        return "invalid_arguments" if validator.errors(call.arguments) else None


def _compile(line: str) -> SchemaValidator:
    return compile_schema(canonical_json(loads_exactly(line)["function"]["parameters"]))


_validator = TextCache(_compile, chars=16_000_000)


class ToolReader:
    """Reads tool lists; keeps the most recent ones, since thousands of rows offer the same servers."""

    def __init__(self, cache_chars: int = 32_000_000):
        self._read = TextCache(_tools_or_reason, cache_chars)

    def read(self, value: Any) -> ToolList:
        """Read a tool list given as JSON text or as parsed JSON. Raises `Unusable`."""
        tools = self._read(value) if isinstance(value, str) else read_tools(value)
        if isinstance(tools, str):
            raise Unusable(tools)
        return tools


def _tools_or_reason(text: str) -> ToolList | str:
    try:
        return read_tools(text)
    except Unusable as error:
        return error.reason


def read_tools(value: Any) -> ToolList:
    """Read a tool list; exact repetitions of a tool are read once.

    Raises `Unusable`: no_tools, unparseable_tools, conflicting_tools, invalid_text.
    """
    for _ in range(3):
        if not isinstance(value, str):
            break
        if not value.strip():
            raise Unusable("no_tools")
        try:
            value = loads_exactly(value)
        except ValueError as error:
            raise Unusable("unparseable_tools") from error
    if isinstance(value, dict):
        value = [value]
    if value is None or value == []:
        raise Unusable("no_tools")
    if not isinstance(value, list):
        raise Unusable("unparseable_tools")
    lines: dict[str, str] = {}
    for item in value:
        tool = normalise_tool(item)
        try:
            line = to_json(tool)
        except (ValueError, TypeError) as error:
            raise Unusable("unparseable_tools") from error
        if lines.setdefault(tool["function"]["name"], line) != line:
            raise Unusable("conflicting_tools")
    text = "\n".join(lines.values())
    return ToolList(lines, text, hashlib.sha256(text.encode()).hexdigest())


def normalise_tool(item: Any) -> dict[str, Any]:
    """One tool in the form that is written, whatever the spelling.

    Raises `Unusable`: unparseable_tools, invalid_text.
    """
    if isinstance(item, str):
        try:
            item = loads_exactly(item)
        except ValueError as error:
            raise Unusable("unparseable_tools") from error
    if not isinstance(item, dict):
        raise Unusable("unparseable_tools")
    function = item.get("function", item)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise Unusable("unparseable_tools")
    if "\0" in function["name"]:
        raise Unusable("invalid_text")
    parameters = NO_PARAMETERS
    for key in _SCHEMA_KEYS:
        if function.get(key) is not None:
            parameters = function[key]
            break
    if not isinstance(parameters, dict):
        raise Unusable("unparseable_tools")
    written = {"name": function["name"], "description": function.get("description") or "", "parameters": parameters}
    # What a tool declares of its answers guides the simulator.
    written |= {key: function[key] for key in OUTPUT_KEYS if isinstance(function.get(key), dict)}
    return {"type": "function", "function": written}
