"""The tools of one row: its schemas by name, in whichever of the usual forms they are written.

Read are `{"type": "function", "function": {...}}`, the bare `{"name", "parameters"}`, MCP's `inputSchema` and
`input_schema`, `parameters: null`, and a list given as a JSON string (or a JSON string of one). A schema is
kept as it is written; what cannot be read is left out and counted in `Tools.skipped`.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from recipe_slca.sgls.schema_validator import SchemaValidator, compile_schema, deeper_than
from recipe_slca.tool_calls import loads

_PARAMETER_KEYS = ("parameters", "input_schema", "inputSchema")
OUTPUT_KEYS = ("outputSchema", "output_schema", "returns", "response")
_ROWS_KEPT = 256
MAX_DEPTH = 300
"""Levels of lists and objects in one entry; Python's own JSON reader and writer end soon after."""


def canonical_json(value: Any) -> str:
    """The one spelling of a JSON value: sorted keys, no spaces. Raises `ValueError` for what JSON cannot hold."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def normalised(value: Any) -> Any:
    """Arguments in the one form in which they are remembered: 3.0 is 3. Order is left to `canonical_json`."""
    if isinstance(value, dict):
        return {name: normalised(item) for name, item in value.items()}
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


@dataclass(frozen=True)
class ToolSchema:
    """One tool: its `name`, its `raw` schema as the row has it (and in `canonical` JSON), and the JSON schema
    of its `parameters`."""

    name: str
    raw: Mapping[str, Any]
    canonical: str
    parameters: Any

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.canonical.encode("utf-8", "replace")).hexdigest()

    @cached_property
    def validator(self) -> SchemaValidator:
        """The compiled validator, shared by all tools with the same parameters."""
        return compile_schema(canonical_json(self.parameters))

    @property
    def output(self) -> Mapping[str, Any] | None:
        """The declared schema of what the tool returns."""
        declared = (self.raw.get(key) for key in OUTPUT_KEYS)
        return next((output for output in declared if isinstance(output, Mapping)), None)

    @property
    def answers_in_text(self) -> bool:
        """Whether the tool declares that it returns plain text instead of JSON."""
        return self.output is not None and self.output.get("type") == "string"


@dataclass(frozen=True)
class Tools:
    """The tools a row offers, by name, in the order given.

    skipped: how many entries were left out, by reason: `not_json`, `too_deep`, `not_a_schema`, `no_name`,
        `duplicate` (another definition of the same name; the first one counts).
    """

    by_name: Mapping[str, ToolSchema] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_schemas(cls, schemas: list[Any] | str | None) -> "Tools":
        """Read a row's schemas. Never raises: an unreadable list gives no tools and says so in `skipped`."""
        if isinstance(schemas, str):
            return _read_text(schemas)
        return _read_list(schemas)

    def get(self, name: str) -> ToolSchema | None:
        """The tool of that exact name."""
        return self.by_name.get(name)

    @property
    def names(self) -> list[str]:
        """The names in the order given."""
        return list(self.by_name)


@lru_cache(maxsize=_ROWS_KEPT)
def _read_text(text: str) -> Tools:
    """Cached by content, since all rollouts of a group carry the same text of up to 400,000 characters."""
    try:
        value = loads(text) if text.strip() else []
        return _read_list(loads(value) if isinstance(value, str) else value)
    except ValueError:
        return Tools(skipped={"not_json": 1})


def _read_list(schemas: Any) -> Tools:
    if schemas is None:
        return Tools()
    listed = [schemas] if isinstance(schemas, Mapping) else schemas
    try:
        items = list(listed)
    except TypeError:
        return Tools(skipped={"not_a_schema": 1})
    tools: dict[str, ToolSchema] = {}
    skipped: Counter[str] = Counter()
    for item in items:
        tool = _read_schema(item)
        if isinstance(tool, str):
            skipped[tool] += 1
        elif tool.name in tools:
            skipped["duplicate"] += tools[tool.name].canonical != tool.canonical
        else:
            tools[tool.name] = tool
    return Tools(tools, {reason: count for reason, count in skipped.items() if count})


def _read_schema(item: Any) -> ToolSchema | str:
    """The tool, or the reason why it cannot be read."""
    if isinstance(item, str):
        try:
            item = loads(item)
        except ValueError:
            return "not_json"
    if isinstance(item, Mapping) and isinstance(item.get("function"), Mapping):
        item = item["function"]
    if not isinstance(item, Mapping):
        return "not_a_schema"
    name = item.get("name")
    if not isinstance(name, str) or not name:
        return "no_name"
    if deeper_than(item, MAX_DEPTH):
        return "too_deep"
    try:
        canonical = canonical_json(item)
    except (ValueError, TypeError):
        return "not_json"
    given = [item[key] for key in _PARAMETER_KEYS if item.get(key) is not None]
    return ToolSchema(name, item, canonical, _tidy(given[0]) if given else {})


def _tidy(parameters: Any) -> Any:
    """MCP servers write null for what they leave out; JSON Schema knows no null keywords."""
    if isinstance(parameters, str):
        try:
            parameters = loads(parameters)
        except ValueError:
            return parameters
    if not isinstance(parameters, Mapping):
        return parameters
    return {key: value for key, value in parameters.items() if value is not None or key in ("default", "const")}
