"""Answers made up from the schema and the call alone: for tests and demos, without any model."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from recipe_slca.sgls.responders import Request, Response
from recipe_slca.sgls.tools import canonical_json, normalised

_FIELDS = 6
_LEVELS = 3
_ECHOED_ARGUMENTS = 3
_ECHOED_CHARS = 40


class SyntheticResponder:
    """The same call always gets the same short JSON.

    A tool that declares the schema of its output gets a value of that form; any other gets up to three of
    the arguments back with a made-up `result` and `id`.
    """

    name = "synthetic"

    async def respond(self, request: Request) -> Response | None:
        arguments = normalised(request.call.arguments)
        digits = _digits(canonical_json([request.call.name, arguments]))
        declared = request.tool.output if request.tool else None
        answer = _value(declared, digits, _LEVELS) if declared else _echo(arguments, digits)
        return Response(json.dumps(answer, ensure_ascii=False).replace("<", "\\u003c"))


def _digits(text: str) -> Iterator[int]:
    """An endless stream of numbers below 2**32 that depends on the text alone."""
    state = text.encode("utf-8", "replace")
    while True:
        state = hashlib.sha256(state).digest()
        yield int.from_bytes(state[:4], "big")


def _echo(arguments: Mapping[str, Any], digits: Iterator[int]) -> dict[str, Any]:
    scalars = {
        name[:_ECHOED_CHARS]: value[:_ECHOED_CHARS] if isinstance(value, str) else value
        for name, value in sorted(arguments.items())
        if isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) < 2**63)
    }
    shown = dict(list(scalars.items())[:_ECHOED_ARGUMENTS])
    return {**shown, "result": next(digits) % 1000, "id": f"{next(digits):08x}"}


def _value(schema: Any, digits: Iterator[int], levels: int) -> Any:
    """A value of the schema's form; null where the schema asks for more than types, enums and properties."""
    if not isinstance(schema, Mapping) or not levels:
        return None
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return options[next(digits) % len(options)]
    types = schema.get("type", "object" if "properties" in schema else None)
    match types[0] if isinstance(types, list) and types else types:
        case "object":
            properties = schema.get("properties")
            fields = sorted(properties.items())[:_FIELDS] if isinstance(properties, Mapping) else []
            return {name: _value(field, digits, levels - 1) for name, field in fields}
        case "array":
            return [_value(schema.get("items"), digits, levels - 1)]
        case "string":
            return f"{next(digits):08x}"
        case "integer":
            return next(digits) % 1000
        case "number":
            return next(digits) % 100_000 / 100
        case "boolean":
            return bool(next(digits) % 2)
    return None
