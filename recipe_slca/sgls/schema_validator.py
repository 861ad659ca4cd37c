"""Compile a JSON schema that nobody has vetted into a validator that cannot hang, crash or reach out.

Built on `jsonschema-rs`, because it is safe with untrusted schemas and fast: it reads drafts 4 to 2020-12,
resolves references offline, and bounds the steps of a regular expression by counting them, so that the same
call gets the same verdict on an idle and on a busy machine (a bound in seconds would not).
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs

from recipe_slca.sgls.schema_cost import ForeignReference, TooCostly, check_cost

MAX_SCHEMA_CHARS = 200_000
MAX_SCHEMA_DEPTH = 64
REGEX_STEPS = 2000
"""Backtracking steps; one step can cost as much as reading the text once, so this times the size is the bound."""
_REGEX = jsonschema_rs.FancyRegexOptions(backtrack_limit=REGEX_STEPS, size_limit=1_000_000, dfa_size_limit=1_000_000)
_DRAFTS = {
    "2020-12": jsonschema_rs.Draft202012Validator,
    "2019-09": jsonschema_rs.Draft201909Validator,
    "draft-07": jsonschema_rs.Draft7Validator,
    "draft-06": jsonschema_rs.Draft6Validator,
    "draft-04": jsonschema_rs.Draft4Validator,
}
_GUESSES = ("2020-12", "draft-07", "draft-04")
_SCHEMAS_KEPT = 8192


@dataclass(frozen=True)
class SchemaValidator:
    """A compiled schema, or, when it is `broken` (the reason), None: such a tool accepts every call."""

    compiled: Any
    broken: str | None = None

    def errors(self, arguments: dict[str, Any]) -> list[jsonschema_rs.ValidationError]:
        """Every error of a call's arguments; the usual case, none, takes about a microsecond."""
        if self.compiled is None or self.compiled.is_valid(arguments):
            return []
        return list(self.compiled.iter_errors(arguments))


@lru_cache(maxsize=_SCHEMAS_KEPT)
def compile_schema(canonical: str) -> SchemaValidator:
    """Compile a schema given as canonical JSON. Never raises; cached by content.

    Reasons of a broken schema: `not_an_object`, `too_large`, `too_deep`, `too_costly` (references that
    multiply, or never end), `unresolvable_reference` (anything but a reference into the schema itself is
    never fetched), `invalid_schema`.
    """
    if len(canonical) > MAX_SCHEMA_CHARS:
        return SchemaValidator(None, "too_large")
    schema = json.loads(canonical)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        return SchemaValidator(None, "not_an_object")
    if deeper_than(schema, MAX_SCHEMA_DEPTH):
        return SchemaValidator(None, "too_deep")
    try:
        check_cost(schema)
    except TooCostly:
        return SchemaValidator(None, "too_costly")
    except ForeignReference:
        return SchemaValidator(None, "unresolvable_reference")
    return _compile(schema)


def deeper_than(value: Any, limit: int) -> bool:
    """Whether lists and objects are nested more than `limit` levels."""
    level = [value]
    for _ in range(limit + 1):
        nested = [item for item in level if isinstance(item, (dict, list))]
        if not nested:
            return False
        level = [child for item in nested for child in (item.values() if isinstance(item, dict) else item)]
    return True


def _compile(schema: dict[str, Any]) -> SchemaValidator:
    declared = str(schema.get("$schema", ""))
    drafts = [name for name in _DRAFTS if name in declared] or list(_GUESSES)
    reason = "invalid_schema"
    for draft in drafts:
        try:
            compiled = _DRAFTS[draft](schema, validate_formats=True, pattern_options=_REGEX, offline=True)
        except jsonschema_rs.ValidationError as error:
            if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
                reason = "unresolvable_reference"
        except (jsonschema_rs.ReferencingError, ValueError):
            continue
        else:
            return SchemaValidator(compiled)
    return SchemaValidator(None, reason)
