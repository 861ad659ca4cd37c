"""Validation: every kind of fault, told always alike, and untrusted schemas that must not do harm."""

import json
import time
from collections import Counter

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe_slca.sgls.schema_cost import MAX_ARGUMENT_DEPTH, ForeignReference, TooCostly, check_cost
from recipe_slca.sgls.schema_validator import compile_schema
from recipe_slca.sgls.tools import Tools, canonical_json
from recipe_slca.sgls.validation import ERROR_TYPES, MAX_ARGUMENT_CHARS, check_bounds, malformed_call, validate
from recipe_slca.tool_calls import MALFORMED_REASONS, ToolCall

FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "units": {"type": "string", "enum": ["metric", "imperial"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
        "near": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                    "required": ["lat", "lon"],
                },
                {"type": "null"},
            ]
        },
        "from": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "mode": {"const": "fast"},
        "level": {"anyOf": [{"const": 1}, {"enum": [2, 3]}, {"type": "null"}]},
        "place": {"$ref": "#/$defs/place"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"zip": {"type": "string"}}, "required": ["zip"]}},
}


def tools_with(parameters, name="forecast") -> Tools:
    return Tools.from_schemas([{"type": "function", "function": {"name": name, "parameters": parameters}}])


def check(arguments, parameters=FORECAST, name="forecast"):
    """The error objects of a call, the first one first; [] for a valid call."""
    observation = validate(tools_with(parameters), ToolCall(name, arguments), Counter())
    if observation is None:
        return []
    told = json.loads(observation.text)
    assert observation.status == told["error"]["type"]
    assert observation.source == "validation"
    return [told["error"], *told.get("also", [])]


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "Oslo"},
        {"city": "Oslo", "units": "metric", "days": 14, "tags": ["a", "b"], "near": None, "from": "2026-01-31"},
        {
            "city": "Oslo",
            "near": {"lat": 1, "lon": 2.5},
            "code": "OSL",
            "mode": "fast",
            "level": 3,
            "place": {"zip": ""},
        },
        {"city": "Oslo", "days": 3.0},
    ],
)
def test_valid_calls_pass(arguments):
    assert check(arguments) == []


@pytest.mark.parametrize(
    ("arguments", "kind", "path", "expected"),
    [
        ({}, "missing_argument", "$.city", "string"),
        ({"city": "x", "place": {}}, "missing_argument", "$.place.zip", "string"),
        ({"city": "x", "near": {"lat": 1}}, "missing_argument", "$.near.lon", "number"),
        ({"city": "x", "town": 1}, "unexpected_argument", "$.town", None),
        ({"city": 3}, "wrong_type", "$.city", "string"),
        ({"city": None}, "wrong_type", "$.city", "string"),
        ({"city": "x", "days": "3"}, "wrong_type", "$.days", "integer"),
        ({"city": "x", "near": 3}, "wrong_type", "$.near", "null or object"),
        ({"city": "x", "tags": ["a", 1]}, "wrong_type", "$.tags[1]", "string"),
        ({"city": "x", "units": "kelvin"}, "not_in_enum", "$.units", "one of metric, imperial"),
        ({"city": "x", "mode": "slow"}, "not_in_enum", "$.mode", "exactly fast"),
        ({"city": "x", "level": 9}, "not_in_enum", "$.level", "one of 1, 2, 3"),
        ({"city": "x", "days": 0}, "out_of_range", "$.days", "minimum 1"),
        ({"city": "x", "days": 15}, "out_of_range", "$.days", "maximum 14"),
        ({"city": ""}, "out_of_range", "$.city", "minLength 1"),
        ({"city": "x", "tags": ["a", "b", "c"]}, "out_of_range", "$.tags", "maxItems 2"),
        ({"city": "x", "tags": ["a", "a"]}, "out_of_range", "$.tags", "no item twice"),
        ({"city": "x", "from": "31.1.2026"}, "bad_format", "$.from", "format date"),
        ({"city": "x", "code": "osl"}, "bad_format", "$.code", "text matching ^[A-Z]{3}$"),
        ({"city": float("nan")}, "invalid_json", "$", None),
        ({"city": "\ud800"}, "invalid_json", "$", None),
        ({"city": "x" * MAX_ARGUMENT_CHARS}, "too_large", "$", None),
    ],
)
def test_each_fault_is_told_with_type_path_and_expectation(arguments, kind, path, expected):
    error, *also = check(arguments)
    assert (error["type"], error["path"], error["tool"]) == (kind, path, "forecast")
    assert error["expected"] == expected if expected else error["expected"]
    assert also == []
    assert kind in ERROR_TYPES


def test_wrong_type_says_what_was_received():
    assert check({"city": True})[0]["received"] == "boolean"


def test_unexpected_argument_lists_the_known_ones():
    assert check({"city": "x", "town": 1})[0]["expected"].startswith("one of city, units, days")


def test_unknown_tool_names_the_closest():
    error, *_ = check({}, name="forecst")
    assert (error["type"], error["closest"]) == ("unknown_tool", ["forecast"])
    assert check({}, name="zzz")[0]["closest"] == []


def test_several_faults_are_listed_in_a_fixed_order_and_bounded():
    arguments = {"units": "K", "days": 99, "tags": [1, 2, 3], "code": "x", "town": 1, "mode": 2}
    faults = check(arguments)
    assert [fault["type"] for fault in faults[:2]] == ["missing_argument", "unexpected_argument"]
    assert len(faults) == 5
    assert faults == check(dict(reversed(arguments.items())))


@given(
    st.dictionaries(
        st.sampled_from([*FORECAST["properties"], "town", "a b", "<|im_end|>", "é"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
@settings(max_examples=300, deadline=None)
def test_verdicts_agree_with_an_independent_validator(arguments):
    plain = {**FORECAST, "properties": {**FORECAST["properties"]}}
    reference = jsonschema.Draft202012Validator(plain, format_checker=jsonschema.FormatChecker(["date"]))
    try:
        canonical_json(arguments).encode()
    except ValueError:
        assert check(arguments)[0]["type"] == "invalid_json"
        return
    faults = check(arguments)
    assert (faults == []) == reference.is_valid(arguments)
    assert all(fault["type"] in ERROR_TYPES and fault["path"] and fault["expected"] for fault in faults)


@pytest.mark.parametrize("hostile", ["</tool_response>", "<|im_end|>", "<tool_call>"])
def test_what_the_policy_wrote_cannot_come_back_as_a_tag(hostile):
    for call in (ToolCall(hostile, {}), ToolCall("forecast", {"city": "x", hostile: 1})):
        observation = validate(tools_with(FORECAST), call, Counter())
        assert "<" not in observation.text
        assert hostile in json.dumps(json.loads(observation.text), ensure_ascii=False)


def test_long_names_are_cut():
    observation = validate(tools_with(FORECAST), ToolCall("forecast", {"city": "x", "y" * 10_000: 1}), Counter())
    assert len(observation.text) < 1000


def test_a_tool_name_that_utf8_cannot_hold():
    validate(tools_with(FORECAST), ToolCall("\ud800", {}), Counter()).text.encode()


def test_deep_arguments_are_refused():
    arguments: dict = {"city": "x"}
    for _ in range(MAX_ARGUMENT_DEPTH + 1):
        arguments = {"a": arguments}
    assert check(arguments, {})[0]["type"] == "too_large"
    assert check_bounds(ToolCall("any", arguments)).status == "too_large"
    assert check_bounds(ToolCall("any", {"a": [{}]})) is None


@pytest.mark.parametrize("reason", [*MALFORMED_REASONS, "something new"])
def test_malformed_blocks_have_an_observation(reason):
    observation = malformed_call(reason)
    error = json.loads(observation.text)["error"]
    assert (observation.status, error["type"], error["reason"]) == ("malformed_call", "malformed_call", reason)
    assert "<" not in observation.text


DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
MORE_THAN_ONE_IN_DRAFT_4 = {"minimum": 1, "exclusiveMinimum": True}


@pytest.mark.parametrize(
    ("draft", "schema", "arguments"),
    [
        (4, {"properties": {"a": MORE_THAN_ONE_IN_DRAFT_4}}, {"a": 1}),
        (None, {"properties": {"a": MORE_THAN_ONE_IN_DRAFT_4}}, {"a": 1}),
        (6, {"properties": {"a": {"exclusiveMinimum": 1}}}, {"a": 1}),
        (7, {"properties": {"a": {"if": {"const": 1}, "then": False}}}, {"a": 1}),
        (2019, {"dependentRequired": {"a": ["b"]}}, {"a": 1}),
        (2020, {"properties": {"a": {"prefixItems": [{"type": "string"}]}}}, {"a": [1]}),
        (
            None,
            {"definitions": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/definitions/n"}}},
            {"a": "x"},
        ),
    ],
)
def test_each_draft_is_read(draft, schema, arguments):
    declared = {"$schema": DRAFTS[draft], **schema} if draft else schema
    assert check(arguments, declared) != []
    assert check({}, declared) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": ["integer", "null"]}}},
        {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
        {"properties": {"a": {}}},
        {"type": "object", "properties": None, "required": None},
        None,
        "null",
        True,
    ],
)
def test_mcp_forms_take_null_and_leave_things_out(schema):
    assert check({"a": None}, schema) == []


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "banana"}, "invalid_schema"),
        ({"properties": {"a": {"required": True}}}, "invalid_schema"),
        ({"properties": {"a": {"pattern": "(("}}}, "invalid_schema"),
        ({"properties": {"a": {"pattern": "(((a{1000}){1000}){1000})"}}}, "invalid_schema"),
        ([1], "not_an_object"),
        ("{", "not_an_object"),
        ({"description": "x" * 200_001}, "too_large"),
        ({"$ref": "http://127.0.0.1:1/schema.json"}, "unresolvable_reference"),
        ({"$ref": "file:///etc/passwd"}, "unresolvable_reference"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "unresolvable_reference"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "unresolvable_reference"),
        ({"$ref": "#"}, "too_costly"),
        ({"allOf": [{"$ref": "#"}]}, "too_costly"),
    ],
)
def test_a_broken_schema_makes_its_tool_permissive_and_is_counted(schema, reason):
    tools = tools_with(schema)
    assert tools.get("forecast").validator.broken == reason
    counts: Counter = Counter()
    assert validate(tools, ToolCall("forecast", {"a": 1}), counts) is None
    assert counts == {"broken_schema": 1}


def test_a_deep_schema_is_refused():
    schema: dict = {}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    assert tools_with(schema).get("forecast").validator.broken == "too_deep"


def doubling(levels: int) -> dict:
    twice = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"$defs": {**twice, f"a{levels}": {"type": "object"}}, "$ref": "#/$defs/a0"}


ONE_OF_EACH = {
    "$defs": {
        "json": {
            "anyOf": [
                {"type": ["string", "number", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/json"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
            ]
        }
    },
    "properties": {"value": {"$ref": "#/$defs/json"}},
}
TREE = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "tags": {"items": {"type": "string"}}}}

KINDS = {
    "$defs": {
        "block": {
            "oneOf": [
                {
                    "properties": {"kind": {"const": kind}, kind: {"items": {"$ref": "#/$defs/block"}}},
                    "required": [kind],
                }
                for kind in ("text", "quote", "list", "table", "column")
            ]
        }
    },
    "$ref": "#/$defs/block",
}


@pytest.mark.parametrize(
    "schema",
    [
        doubling(30),
        {"properties": {"x": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
        {"items": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        {"anyOf": [{"properties": {"x": {"$ref": "#"}}, "required": [name]} for name in "qr"]},
        {"$dynamicAnchor": "n", "properties": {"x": {"oneOf": [{"$dynamicRef": "#n"}, {"$dynamicRef": "#n"}]}}},
        {"$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(5000)} | {"a5000": {}}, "$ref": "#/$defs/a0"},
    ],
)
def test_references_that_multiply_are_refused_at_once(schema):
    start = time.perf_counter()
    with pytest.raises(TooCostly):
        check_cost(schema)
    assert compile_schema(canonical_json(schema)).broken == "too_costly"
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize("schema", [ONE_OF_EACH, TREE, KINDS, doubling(5)])
def test_honest_recursion_is_allowed(schema):
    check_cost(schema)
    assert compile_schema(canonical_json(schema)).broken is None


def test_recursive_schemas_check_what_is_deep_inside():
    value = {"left": {"right": {"left": {"tags": ["a", 1]}}}}
    assert check(value, TREE)[0]["path"] == "$.left.right.left.tags[1]"


def test_nested_addresses_are_refused():
    with pytest.raises(ForeignReference):
        check_cost({"properties": {"a": {"$id": "http://h/x", "$ref": "#/properties/a"}}})


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(?=(a+)+b)", r"^(a|aa)+\1$", r"(?=(a*)*b)(\w+)\2"])
def test_a_regular_expression_cannot_hang(pattern):
    start = time.perf_counter()
    check({"a": "a" * 50_000 + "!"}, {"properties": {"a": {"pattern": pattern}}})
    assert time.perf_counter() - start < 2


def test_a_pattern_that_needs_too_many_steps_lets_the_value_pass_and_is_counted():
    schema = {"properties": {"a": {"pattern": r"^(?=(a+)+$)(\w+)\1$"}, "b": {"type": "integer"}}}
    counts: Counter = Counter()
    long = "a" * 50_000 + "!"
    assert validate(tools_with(schema), ToolCall("forecast", {"a": long}), counts) is None
    assert counts["unchecked_pattern"] == 1
    assert validate(tools_with(schema), ToolCall("forecast", {"a": long, "b": "x"}), counts).status == "wrong_type"


def test_patterns_are_ecmascript():
    schema = {"properties": {"a": {"pattern": "^[\\u4e00-\\u9fff\\/]+$"}, "b": {"pattern": "^(?!x)\\d+$"}}}
    assert check({"a": "中/", "b": "12"}, schema) == []
    assert [fault["path"] for fault in check({"a": "a", "b": "x1"}, schema)] == ["$.a", "$.b"]
