"""Check a call against its tool's schema and say what is wrong, in words a policy can learn from.

The same fault always gives the same text:

    {"error": {"type": "missing_argument", "tool": "weather-get", "path": "$.city", "expected": "string"}}

`type` is one of `ERROR_TYPES`; further faults of the same call follow under `also`.
"""

import difflib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from jsonschema_rs import ValidationErrorKind as Kind

from recipe_slca.sgls.observation import Observation, error_observation
from recipe_slca.sgls.schema_cost import MAX_ARGUMENT_DEPTH
from recipe_slca.sgls.schema_validator import deeper_than
from recipe_slca.sgls.tools import Tools, ToolSchema
from recipe_slca.tool_calls import MALFORMED_REASONS, ToolCall

ERROR_TYPES = (
    "unknown_tool",
    "invalid_json",
    "too_large",
    "missing_argument",
    "unexpected_argument",
    "wrong_type",
    "not_in_enum",
    "out_of_range",
    "bad_format",
)
"""In the order in which the faults of one call are listed."""
MAX_ARGUMENT_CHARS = 65_536
MAX_FURTHER_FAULTS = 4
_SHOWN_CHARS = 160
_SHOWN_OPTIONS = 20
_UNDECIDED = (Kind.BacktrackLimitExceeded, Kind.RegexEngineFailure, Kind.Referencing)
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}

Fault = dict[str, Any]


def validate(tools: Tools, call: ToolCall, counts: Counter[str]) -> Observation | None:
    """None for a valid call, else the observation that explains the fault.

    counts: gets `broken_schema` when the tool's schema cannot be used (every call passes then) and
        `unchecked_pattern` when a regular expression needed too many steps (the value passes then).
    """
    tool = tools.get(call.name)
    if tool is None:
        offered = [name for name in tools.names if len(name) <= _SHOWN_CHARS]
        closest = difflib.get_close_matches(call.name[:_SHOWN_CHARS], offered, n=3, cutoff=0.5)
        return error_observation(
            {"type": "unknown_tool", "tool": _cut(call.name), "expected": "a tool that is offered", "closest": closest},
            "validation",
        )
    return _observe(call, _bounds(call.arguments) or _schema_faults(tool, call.arguments, counts))


def check_bounds(call: ToolCall) -> Observation | None:
    """What is checked without a schema too: that the arguments are JSON of a size and depth that can be handled."""
    return _observe(call, _bounds(call.arguments))


def _observe(call: ToolCall, faults: list[Fault]) -> Observation | None:
    if not faults:
        return None
    first, *rest = ({"type": fault.pop("type"), "tool": _cut(call.name), **fault} for fault in faults)
    for fault in rest:
        del fault["tool"]
    also = rest[:MAX_FURTHER_FAULTS]
    return error_observation(first, "validation", **({"also": also} if also else {}))


def malformed_call(reason: str) -> Observation:
    """The observation for a `<tool_call>` block that could not be read (`tool_calls.Block.error`)."""
    return error_observation(
        {
            "type": "malformed_call",
            "reason": reason,
            "found": MALFORMED_REASONS.get(reason, "the block could not be read"),
            "expected": 'one {"name": ..., "arguments": {...}} or a list of them, in JSON, between the tool_call tags',
        },
        "validation",
    )


def _bounds(arguments: dict[str, Any]) -> list[Fault]:
    """Faults that must be found before a validator sees the arguments."""
    if deeper_than(arguments, MAX_ARGUMENT_DEPTH):
        return [{"type": "too_large", "path": "$", "expected": f"at most {MAX_ARGUMENT_DEPTH} nested levels"}]
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError):
        return [{"type": "invalid_json", "path": "$", "expected": "JSON without NaN, Infinity or half characters"}]
    if len(text) > MAX_ARGUMENT_CHARS:
        return [{"type": "too_large", "path": "$", "expected": f"at most {MAX_ARGUMENT_CHARS} characters of JSON"}]
    return []


def _schema_faults(tool: ToolSchema, arguments: dict[str, Any], counts: Counter[str]) -> list[Fault]:
    validator = tool.validator
    if validator.broken:
        counts["broken_schema"] += 1
        return []
    errors = validator.errors(arguments)
    if not errors:
        return []
    faults = list(_explain_all(errors, tool.parameters))
    if not faults:
        counts["unchecked_pattern"] += 1
    faults.sort(key=lambda fault: (ERROR_TYPES.index(fault["type"]), fault["path"], fault["expected"]))
    return [fault for place, fault in enumerate(faults) if fault not in faults[:place]]


def _explain_all(errors: Iterable[Any], schema: Any) -> Iterable[Fault]:
    for error in errors:
        if not isinstance(error.kind, _UNDECIDED):
            yield from _explain(error, schema)


def _explain(error: Any, schema: Any) -> Iterable[Fault]:
    kind = error.kind
    path = list(error.instance_path)
    keyword = error.schema_path[-1] if error.schema_path else ""
    owner = _look_up(schema, error.schema_path[:-1])
    match kind:
        case Kind.Required():
            expected = _describe(_look_up(owner, ["properties", kind.property]))
            yield _fault("missing_argument", [*path, kind.property], expected)
        case Kind.AdditionalProperties() | Kind.UnevaluatedProperties():
            known = owner.get("properties") if isinstance(owner, dict) else None
            expected = f"one of {_list_options(known)}" if known else "no such argument"
            for name in kind.unexpected:
                yield _fault("unexpected_argument", [*path, name], expected)
        case Kind.FalseSchema():
            yield _fault("unexpected_argument", path, "no such argument")
        case Kind.Type():
            yield _fault("wrong_type", path, " or ".join(sorted(kind.types)), _type_name(error.instance))
        case Kind.Enum():
            yield _fault("not_in_enum", path, f"one of {_list_options(kind.options)}")
        case Kind.Constant():
            yield _fault("not_in_enum", path, f"exactly {_show(kind.expected_value)}")
        case Kind.AnyOf() | Kind.OneOfNotValid():
            yield from _explain_branches(kind.context, path, error.instance, schema)
        case Kind.OneOfMultipleValid():
            yield _fault("bad_format", path, "exactly one of the allowed forms, not several")
        case Kind.Format():
            yield _fault("bad_format", path, f"format {_cut(kind.format)}")
        case Kind.Pattern():
            yield _fault("bad_format", path, f"text matching {_cut(kind.pattern)}")
        case Kind.PropertyNames():
            yield _fault("bad_format", path, "other argument names")
        case Kind.Not() | Kind.ContentEncoding() | Kind.ContentMediaType() | Kind.FromUtf8() | Kind.Custom():
            yield _fault("bad_format", path, f"a value that satisfies {_cut(str(keyword))}")
        case Kind.UniqueItems():
            yield _fault("out_of_range", path, "no item twice")
        case _:
            limit = _show(owner[keyword]) if isinstance(owner, dict) and keyword in owner else ""
            yield _fault("out_of_range", path, f"{_cut(str(keyword))} {limit}".strip())


def _explain_branches(branches: list[list[Any]], path: list[Any], instance: Any, schema: Any) -> Iterable[Fault]:
    """Explain why no branch of an anyOf or oneOf fits, by the branch that comes closest."""
    if any(all(isinstance(error.kind, _UNDECIDED) for error in errors) for errors in branches):
        return
    here = [[error for error in errors if list(error.instance_path) == path] for errors in branches]
    types = {
        name for errors in here for error in errors if isinstance(error.kind, Kind.Type) for name in error.kind.types
    }
    fitting = [
        errors
        for errors, local in zip(branches, here, strict=True)
        if not any(isinstance(error.kind, Kind.Type) for error in local)
    ]
    if not fitting:
        yield _fault("wrong_type", path, " or ".join(sorted(types)), _type_name(instance))
        return
    options = [error.kind for errors in fitting for error in errors if len(errors) == 1]
    if len(options) == len(fitting) and all(isinstance(kind, Kind.Enum | Kind.Constant) for kind in options):
        allowed = [
            value
            for kind in options
            for value in (kind.options if isinstance(kind, Kind.Enum) else [kind.expected_value])
        ]
        yield _fault("not_in_enum", path, f"one of {_list_options(allowed)}")
        return
    yield from _explain_all(min(fitting, key=len), schema)


def _fault(kind: str, path: list[Any], expected: str, received: str | None = None) -> Fault:
    fault = {"type": kind, "path": _json_path(path), "expected": expected}
    return fault if received is None else {**fault, "received": received}


def _json_path(path: list[Any]) -> str:
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{json.dumps(part, ensure_ascii=False)}]"
    return _cut(text)


def _describe(schema: Any) -> str:
    """A few words on what a schema takes."""
    if not isinstance(schema, dict):
        return "any value"
    if isinstance(schema.get("enum"), list):
        return f"one of {_list_options(schema['enum'])}"
    types = schema.get("type")
    if isinstance(types, str):
        return _cut(types)
    if isinstance(types, list):
        return _cut(" or ".join(sorted(map(str, types))))
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        return _cut(" or ".join(sorted({_describe(branch) for branch in branches[:_SHOWN_OPTIONS]})))
    return "any value"


def _look_up(schema: Any, path: Iterable[Any]) -> Any:
    """The part of a schema at a path; None where the path leaves it (below a reference)."""
    for part in path:
        try:
            schema = schema[part]
        except (KeyError, IndexError, TypeError):
            return None
    return schema


def _list_options(options: Iterable[Any]) -> str:
    listed = list(options)
    shown = ", ".join(_show(option) for option in listed[:_SHOWN_OPTIONS])
    return shown if len(listed) <= _SHOWN_OPTIONS else f"{shown}, ... ({len(listed)} in all)"


def _show(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


def _type_name(value: Any) -> str:
    return "null" if value is None else _JSON_TYPES.get(type(value), type(value).__name__)
