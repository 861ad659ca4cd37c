"""When a tool's schema makes two argument values the same. A refinement beyond METHOD 3, off by default.

It only ever adds equalities to `values.loosely_equal`, and each needs the schema's word: a default given
explicitly and left out, letter case inside enums of lists and objects, dates and times in other notations
where the format is date or date-time, thousands separators where the type is a number.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from recipe_slca.hierr.values import loosely_equal

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[,_ ]\d{3})+(?:\.\d+)?", re.ASCII)
_YEAR_FIRST = re.compile(r"\s*\d{4}\D", re.ASCII)
_LONGEST_DATE = 64
_DEEPEST_SCHEMA = 32


class SchemaValues:
    """Compares values of one tool's arguments as its JSON Schema says."""

    def __init__(self, schema: Mapping[str, Any] | None):
        """schema: the JSON Schema of the arguments object; anything else leaves loose equality alone."""
        self._root = schema if isinstance(schema, Mapping) else {}
        self._properties = {}
        for option in self._options(self._root):
            properties = option.get("properties")
            self._properties |= properties if isinstance(properties, Mapping) else {}

    def without_defaults(
        self, predicted: Mapping[str, Any], gold: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both without the arguments that only one side gives and that hold the schema's default."""

        def kept(arguments: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
            return {
                name: value for name, value in arguments.items() if name in other or not self._is_default(name, value)
            }

        return kept(predicted, gold), kept(gold, predicted)

    def equal(self, name: str, predicted: Any, gold: Any) -> bool:
        """Whether two values of the argument `name` are the same."""
        return self._equal(self._properties.get(name), predicted, gold, depth=0)

    def _is_default(self, name: str, value: Any) -> bool:
        options = list(self._options(self._properties.get(name)))
        return any("default" in option and self._equal(option, value, option["default"], 0) for option in options)

    def _equal(self, schema: Any, left: Any, right: Any, depth: int) -> bool:
        if loosely_equal(left, right):
            return True
        if left is None or right is None or depth > _DEEPEST_SCHEMA:
            return False
        return any(self._equal_under(option, left, right, depth) for option in self._options(schema))

    def _equal_under(self, schema: Mapping[str, Any], left: Any, right: Any, depth: int) -> bool:
        if isinstance(left, list) and isinstance(right, list):
            items = schema.get("items")
            return len(left) == len(right) and all(
                self._equal(items, one, other, depth + 1) for one, other in zip(left, right, strict=True)
            )
        if isinstance(left, dict) and isinstance(right, dict):
            inner = SchemaValues({**self._definitions(), **schema})
            left, right = inner.without_defaults(left, right)
            return left.keys() == right.keys() and all(
                self._equal(inner._properties.get(name), left[name], right[name], depth + 1) for name in left
            )
        types = schema.get("type")
        types = types if isinstance(types, list) else [types]
        if "number" in types or "integer" in types:
            return loosely_equal(_without_thousands(left), _without_thousands(right))
        if schema.get("format") in ("date", "date-time"):
            moment = _moment(left)
            return moment is not None and moment == _moment(right)
        return False

    def _options(self, schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
        """The schema with its local references followed, and the members of anyOf, oneOf and allOf."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST_SCHEMA:
            return
        yield schema
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            yield from self._options(self._follow(reference), depth + 1)
        for keyword in ("anyOf", "oneOf", "allOf"):
            members = schema.get(keyword)
            for member in members if isinstance(members, list) else ():
                yield from self._options(member, depth + 1)

    def _follow(self, reference: str) -> Any:
        target: Any = self._root
        for part in reference[2:].split("/"):
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
        return target

    def _definitions(self) -> dict[str, Any]:
        return {keyword: self._root[keyword] for keyword in ("$defs", "definitions") if keyword in self._root}


def _without_thousands(value: Any) -> Any:
    if isinstance(value, str) and _THOUSANDS.fullmatch(value.strip()):
        return re.sub("[,_ ]", "", value)
    return value


def _moment(value: Any) -> datetime | None:
    """The moment that a text means, or None when it is no date or can be read in more than one way."""
    if not isinstance(value, str) or len(value) > _LONGEST_DATE:
        return None
    from dateutil import parser

    readings = set()
    # What the text leaves open comes from `default`, and which of day and month is first from `dayfirst`: a
    # text that says a whole date reads the same under all of them.
    for default in (datetime(2000, 1, 2), datetime(2001, 3, 4)):
        for dayfirst in (False,) if _YEAR_FIRST.match(value) else (False, True):
            try:
                moment = parser.parse(value, default=default, dayfirst=dayfirst, tzinfos=_time_zone)
            except (ValueError, OverflowError):
                return None
            readings.add(moment)
    return readings.pop() if len(readings) == 1 else None


def _time_zone(name: str | None, offset: int | None) -> Any:
    """The zone of a text; a name without an offset means different zones in different places."""
    if offset is not None:
        return timezone(timedelta(seconds=offset))
    if name is not None:
        raise ValueError(f"time zone {name} is ambiguous")
    return None
