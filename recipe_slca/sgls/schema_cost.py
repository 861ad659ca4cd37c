"""Refuse a schema whose references multiply until validating one value takes for ever.

Twenty definitions that each name the next one twice ask for a million evaluations, and a recursive
definition with two look-alike branches doubles with every level of the value. The bound here is on the
largest number of subschemas that meet one and the same value, an upper bound found without any value.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

MAX_EVALUATIONS = 2000
"""Subschemas that may meet one value."""
MAX_ARGUMENT_DEPTH = 32
"""Levels of lists and objects in the arguments of a call; no deeper value is ever validated."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_OWN_ADDRESS = ("$id", "id")
_SAME_VALUE = ("not", "if", "then", "else", "propertyNames")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")
_EVERY_ITEM = ("items", "additionalItems", "contains", "unevaluatedItems")
_ITEM_LISTS = ("items", "prefixItems")


class TooCostly(ValueError):
    """The references of the schema multiply beyond `MAX_EVALUATIONS`, or lead back to themselves."""


class ForeignReference(ValueError):
    """The schema refers to something outside itself, or to nothing."""


def check_cost(schema: dict[str, Any]) -> None:
    """Raise `TooCostly` or `ForeignReference` for a schema that must not be used."""
    if not any(key in _REFERENCES for node in _all_objects(schema) for key in node):
        return
    for node in _all_objects(schema):
        if node is not schema and any(isinstance(node.get(key), str) for key in _OWN_ADDRESS):
            raise ForeignReference("a nested address changes what references mean")
    cost = _Cost(schema)
    for depth in range(MAX_ARGUMENT_DEPTH + 1):
        try:
            evaluations = cost.at(schema, depth)
        except RecursionError:
            raise TooCostly("references are chained too deeply") from None
        if evaluations > MAX_EVALUATIONS:
            raise TooCostly(f"more than {MAX_EVALUATIONS} subschemas meet one value at depth {depth}")
        if not evaluations:
            return


class _Cost:
    """Counts evaluations of one value `depth` levels below the value that a subschema is applied to."""

    def __init__(self, root: dict[str, Any]):
        self.root = root
        self.anchors = {
            node[key]: node
            for node in _all_objects(root)
            for key in ("$anchor", "$dynamicAnchor")
            if isinstance(node.get(key), str)
        }
        self.nodes: dict[int, Mapping[str, Any]] = {}
        self.meeting: dict[int, Counter[int]] = {}
        self.open: set[int] = set()
        self.known: dict[tuple[int, int], int] = {}

    def at(self, node: Any, depth: int) -> int:
        """An upper bound, by following the child (a property's name, an item's place) with the most."""
        if not isinstance(node, Mapping):
            return 0
        key = (id(node), depth)
        if key not in self.known:
            meeting = self._meet_same_value(node)
            self.known[key] = self._largest_child(meeting, depth - 1) if depth else meeting.total()
        return self.known[key]

    def _meet_same_value(self, node: Mapping[str, Any]) -> Counter[int]:
        """How often each subschema is applied to the value that `node` is applied to."""
        key = id(node)
        if key not in self.meeting:
            if key in self.open:
                raise TooCostly("a reference leads back to itself")
            self.open.add(key)
            self.nodes[key] = node
            meeting = Counter([key])
            for child in self._same_value(node):
                if isinstance(child, Mapping):
                    meeting.update(self._meet_same_value(child))
            if meeting.total() > MAX_EVALUATIONS:
                raise TooCostly(f"more than {MAX_EVALUATIONS} subschemas meet one value")
            self.open.discard(key)
            self.meeting[key] = meeting
        return self.meeting[key]

    def _largest_child(self, meeting: Counter[int], depth: int) -> int:
        named: Counter[str | int] = Counter()
        any_name = any_place = 0
        for key, times in meeting.items():
            node = self.nodes[key]
            others = times * self.at(node.get("additionalProperties"), depth)
            always = [*_mapped(node.get("patternProperties")).values(), node.get("unevaluatedProperties")]
            any_name += others + times * sum(self.at(child, depth) for child in always)
            for name, child in _mapped(node.get("properties")).items():
                named[name] += times * self.at(child, depth) - others
            any_place += times * sum(self.at(node.get(keyword), depth) for keyword in _EVERY_ITEM)
            for keyword in _ITEM_LISTS:
                for place, child in enumerate(_listed(node.get(keyword))):
                    named[place] += times * self.at(child, depth)
        bases = {str: any_name, int: any_place}
        return max([any_name, any_place, *(bases[type(child)] + more for child, more in named.items())])

    def _same_value(self, node: Mapping[str, Any]) -> Iterator[Any]:
        for key in _REFERENCES:
            if isinstance(node.get(key), str):
                yield self._resolve(node[key])
        yield from (node[key] for key in _SAME_VALUE if key in node)
        for key in _SAME_VALUE_LISTS:
            yield from _listed(node.get(key))
        for key in _SAME_VALUE_MAPS:
            yield from _mapped(node.get(key)).values()

    def _resolve(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise ForeignReference(reference)
        pointer = unquote(reference[1:])
        if pointer in self.anchors:
            return self.anchors[pointer]
        target: Any = self.root
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            try:
                target = target[int(part)] if isinstance(target, list) else target[part]
            except (KeyError, IndexError, ValueError, TypeError):
                raise ForeignReference(reference) from None
        return target


def _all_objects(root: Any) -> Iterator[Mapping[str, Any]]:
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
