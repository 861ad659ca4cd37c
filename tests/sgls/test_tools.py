"""A row's tools in all the forms in which data sets write them."""

import json

import pytest

from recipe_slca.settings import SimulatorSettings
from recipe_slca.sgls import Simulator
from recipe_slca.sgls.tools import Tools, canonical_json

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BARE = {"name": "get", "description": "d", "parameters": PARAMETERS}


@pytest.mark.parametrize(
    "schemas",
    [
        [{"type": "function", "function": BARE}],
        [BARE],
        BARE,
        [{"type": "function", **BARE}],
        [{"name": "get", "inputSchema": PARAMETERS}],
        [{"name": "get", "input_schema": PARAMETERS}],
        [{"name": "get", "parameters": None, "input_schema": PARAMETERS}],
        [{"name": "get", "parameters": json.dumps(PARAMETERS)}],
        [json.dumps(BARE)],
        json.dumps([BARE]),
        json.dumps(json.dumps([BARE])),
    ],
)
def test_all_forms_give_the_same_parameters(schemas):
    tools = Tools.from_schemas(schemas)
    assert tools.names == ["get"]
    assert tools.get("get").parameters == PARAMETERS
    assert tools.skipped == {}


@pytest.mark.parametrize(
    ("schemas", "skipped"),
    [
        ("[{", {"not_json": 1}),
        ('"[{"', {"not_json": 1}),
        ("[" * 100_000, {"not_json": 1}),
        (3, {"not_a_schema": 1}),
        ([3, None, "{"], {"not_a_schema": 2, "not_json": 1}),
        ([{"parameters": {}}, {"name": ""}, {"name": 3}], {"no_name": 3}),
        ([{"name": "get", "parameters": {"default": float("inf")}}], {"not_json": 1}),
        ([json.loads('{"name": "get", "x": ' + "[" * 400 + "]" * 400 + "}")], {"too_deep": 1}),
        ([BARE, BARE], {}),
        ([BARE, {"name": "get"}], {"duplicate": 1}),
        ("", {}),
        (None, {}),
    ],
)
def test_what_cannot_be_read_is_left_out_and_counted(schemas, skipped):
    tools = Tools.from_schemas(schemas)
    assert tools.skipped == skipped
    assert all(tool.parameters == PARAMETERS for tool in tools.by_name.values())


def test_unusual_names_are_kept_as_they_are():
    tools = Tools.from_schemas([{"name": name} for name in ("shadcn/ui-add", "pokémcp-get", "a b")])
    assert tools.names == ["shadcn/ui-add", "pokémcp-get", "a b"]
    assert tools.get("nothing") is None


def test_fingerprint_is_of_the_content():
    one, same, other = (
        Tools.from_schemas([schema]).get("get")
        for schema in (BARE, dict(reversed(BARE.items())), {**BARE, "description": "other"})
    )
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_validators_are_shared_by_content():
    one = Tools.from_schemas([BARE]).get("get")
    other = Tools.from_schemas([{"name": "put", "parameters": PARAMETERS}]).get("put")
    assert one.validator is other.validator


def test_the_same_text_is_read_once():
    assert Tools.from_schemas(json.dumps([BARE])) is Tools.from_schemas(json.dumps([BARE]))


@pytest.mark.parametrize("key", ["outputSchema", "output_schema", "returns", "response"])
def test_declared_text_form(key):
    assert Tools.from_schemas([{"name": "get", key: {"type": "string"}}]).get("get").answers_in_text
    assert not Tools.from_schemas([{"name": "get", key: {"type": "object"}}]).get("get").answers_in_text
    assert not Tools.from_schemas([{"name": "get", key: "text"}]).get("get").answers_in_text


def test_canonical_json():
    assert canonical_json({"b": 1, "a": [1.5, None, "é"]}) == '{"a":[1.5,null,"é"],"b":1}'
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_the_simulator_counts_the_tools_that_a_rollout_lacks():
    simulator = Simulator(SimulatorSettings(responders=["synthetic"]))
    good = {"name": "get", "parameters": {}}
    assert simulator.read_tools([good, {"parameters": {}}, 7]).names == ["get"]
    assert simulator.read_tools("[").names == []
    assert simulator.read_tools([good]).names == ["get"]
    assert simulator.metrics()["slca/sgls/left_out_tools"] == 3
