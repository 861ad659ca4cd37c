"""Tool lists in every published spelling, read into one form.

A tool is written as `{"type": "function", "function": {"name", "description", "parameters"}}`. Sources also
have bare objects, `input_schema` for `parameters`, null parameters, one object for a list, and JSON strings
of any of these.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from data_prep.json_text import loads_exactly, to_json
from data_prep.reasons import Unusable
from recipe_slca.sgls.schema_cost import MAX_ARGUMENT_DEPTH
from recipe_slca.sgls.schema_validator import SchemaValidator, compile_schema, deeper_than
from recipe_slca.sgls.tools import canonical_json
from recipe_slca.tool_calls import ToolCall

NO_PARAMETERS = {"type": "object", "properties": {}}
_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema")


@dataclass(frozen=True)
class ToolList:
    """The tools of a row.

    lines: each tool's JSON text by tool name, in order; none holds a line break. text: all lines. json: the
    same as one JSON list. digest: of the text.
    """

    lines: dict[str, str]
    text: str
    digest: str
    json: str
    _validators: dict[str, SchemaValidator] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> Collection[str]:
        """The names of the tools, in order."""
        return self.lines.keys()

    def verdict(self, call: ToolCall) -> str | None:
        """None when the call passes its tool's schema, as the simulator judges it in rollouts, else what is amiss.

        `invalid_arguments`, or `broken_tool_schema`: the schema itself cannot be used, so that every call passes.
        The tool must be among these. Raises `Unusable("nested_too_deeply")`.
        """
        nested = any(isinstance(value, dict | list) for value in call.arguments.values())
        if nested and deeper_than(call.arguments, MAX_ARGUMENT_DEPTH):
            raise Unusable("nested_too_deeply")
        validator = self._validators.get(call.name)
        if validator is None:
            parameters = loads_exactly(self.lines[call.name])["function"]["parameters"]
            validator = self._validators[call.name] = compile_schema(canonical_json(parameters))
        if validator.broken:
            return "broken_tool_schema"
        return "invalid_arguments" if validator.errors(call.arguments) else None


class ToolReader:
    """Reads tool lists; keeps the most recent ones, since thousands of rows offer the same servers."""

    def __init__(self, cache_chars: int = 32_000_000):
        self._cache: OrderedDict[str, ToolList | Unusable] = OrderedDict()
        self._room = cache_chars

    def read(self, value: Any) -> ToolList:
        """Read a tool list given as JSON text or as parsed JSON. Raises `Unusable`."""
        if not isinstance(value, str):
            return read_tools(value)
        known = self._cache.get(value)
        if known is None:
            try:
                known = read_tools(value)
            except Unusable as error:
                known = error
            self._cache[value] = known
            self._room -= len(value)
            while self._room < 0:
                self._room += len(self._cache.popitem(last=False)[0])
        else:
            self._cache.move_to_end(value)
        if isinstance(known, Unusable):
            raise Unusable(known.reason)
        return known


def read_tools(value: Any) -> ToolList:
    """Read a tool list; exact repetitions of a tool are read once.

    Raises `Unusable`: no_tools, unparseable_tools, conflicting_tools, nested_too_deeply.
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
        name = tool["function"]["name"]
        line = to_json(tool)
        if lines.setdefault(name, line) != line:
            raise Unusable("conflicting_tools")
    text = "\n".join(lines.values())
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ToolList(lines, text, digest, f"[{','.join(lines.values())}]")


def normalise_tool(item: Any) -> dict[str, Any]:
    """One tool in the form that is written, whatever the spelling. Raises `Unusable("unparseable_tools")`."""
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
    parameters = next((function[key] for key in _SCHEMA_KEYS if function.get(key) is not None), NO_PARAMETERS)
    if not isinstance(parameters, dict):
        raise Unusable("unparseable_tools")
    description = function.get("description") or ""
    return {
        "type": "function",
        "function": {"name": function["name"], "description": description, "parameters": parameters},
    }
