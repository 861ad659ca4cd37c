"""Settings: complete by default, and a mistake names the key, the value and what is allowed."""

from typing import Any, get_origin

import pytest
from pydantic import BaseModel

from recipe_slca.settings import (
    AlgorithmSettings,
    JudgeEndpoint,
    Settings,
    SettingsError,
    SimulatorEndpoint,
    read_algorithm_settings,
    read_settings,
)


@pytest.mark.parametrize("node", [None, {}])
def test_without_a_node_the_defaults_apply(node: dict | None):
    assert read_settings(node) == Settings()
    assert read_algorithm_settings(node) == AlgorithmSettings()


def test_the_defaults_are_those_of_the_paper():
    settings = read_settings(None)
    assert settings.process.weights.model_dump() == {
        "format": 0.10,
        "name": 0.25,
        "key": 0.15,
        "value": 0.20,
        "parallel": 0.30,
    }
    endpoint = settings.simulator.endpoint
    assert (endpoint.max_tokens, endpoint.timeout_s, endpoint.retries) == (4096, 540.0, 2)
    assert settings.judge.endpoint.temperature == 0
    assert settings.limits.max_calls_per_turn == 20
    algorithm = read_algorithm_settings(None)
    assert (algorithm.tool_weight, algorithm.summary_weight) == (1.0, 1.0)


def test_what_is_written_out_can_be_read_back():
    assert read_settings(Settings().model_dump()) == Settings()
    assert read_algorithm_settings(AlgorithmSettings().model_dump()) == AlgorithmSettings()


def test_a_part_of_a_node_leaves_its_other_defaults():
    settings = read_settings({"limits": {"max_calls": 7}, "process": {"weights": {"parallel": 0}}})
    assert settings.limits.max_calls == 7
    assert settings.limits.max_calls_per_turn == Settings().limits.max_calls_per_turn
    assert (settings.process.weights.parallel, settings.process.weights.name) == (0.0, 0.25)


def test_a_part_of_an_endpoint_keeps_the_defaults_of_that_endpoint():
    part = {"endpoint": {"base_urls": ["http://127.0.0.1:8000/v1"], "model": "any"}}
    settings = read_settings({"simulator": part, "judge": part})
    simulator, judge = settings.simulator.endpoint, settings.judge.endpoint
    assert simulator == SimulatorEndpoint(**part["endpoint"])
    assert judge == JudgeEndpoint(**part["endpoint"])
    assert (simulator.temperature, simulator.max_tokens) == (0.7, 4096)
    assert (judge.temperature, judge.max_tokens) == (0.0, 1024)


@pytest.mark.parametrize(
    ("read", "node", "key", "known"),
    [
        (read_settings, {"simulater": {}}, "slca.simulater", "simulator"),
        (read_settings, {"limits": {"max_call": 3}}, "slca.limits.max_call", "max_calls"),
        (read_settings, {"process": {"weights": {"names": 1}}}, "slca.process.weights.names", "parallel"),
        (read_settings, {"judge": {"endpoint": {"url": "x"}}}, "slca.judge.endpoint.url", "base_urls"),
        (read_settings, {"simulator": {"cache": {"file": "x"}}}, "slca.simulator.cache.file", "path"),
        (read_algorithm_settings, {"lambda": 1}, "algorithm.slca.lambda", "tool_weight"),
    ],
)
def test_an_unknown_key_is_named_with_those_that_are_known(read: Any, node: dict, key: str, known: str):
    with pytest.raises(SettingsError) as raised:
        read(node)
    message = str(raised.value)
    assert message.startswith(f"{key} is not a setting; known here: ")
    assert known in message


@pytest.mark.parametrize(
    ("read", "node", "key", "value", "allowed"),
    [
        (
            read_algorithm_settings,
            {"tool_weight": -1},
            "algorithm.slca.tool_weight",
            "-1",
            "greater than or equal to 0",
        ),
        (read_algorithm_settings, {"turn_weight": 1.5}, "algorithm.slca.turn_weight", "1.5", "less than or equal to 1"),
        (read_algorithm_settings, {"summary_weight": float("nan")}, "algorithm.slca.summary_weight", "nan", "finite"),
        (read_algorithm_settings, {"toolpo_weight": "much"}, "algorithm.slca.toolpo_weight", "'much'", "number"),
        (read_settings, {"tool_prompt": "none"}, "slca.tool_prompt", "'none'", "'auto', 'template' or 'embedded'"),
        (read_settings, {"simulator": {"responders": []}}, "slca.simulator.responders", "[]", "at least 1"),
        (read_settings, {"simulator": {"responders": ["gpt"]}}, "slca.simulator.responders.0", "'gpt'", "'replay'"),
        (read_settings, {"judge": {"samples": 0}}, "slca.judge.samples", "0", "greater than or equal to 1"),
        (read_settings, {"judge": {"endpoint": {"top_p": 0}}}, "slca.judge.endpoint.top_p", "0", "greater than 0"),
        (read_settings, {"limits": {"max_observation_tokens": 1}}, "slca.limits.max_observation_tokens", "1", "8"),
        (read_settings, {"dump": {"every": "often"}}, "slca.dump.every", "'often'", "integer"),
        (read_settings, {"limits": 3}, "slca.limits", "3", "dictionary"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(read: Any, node: dict, key: str, value: str, allowed: str):
    with pytest.raises(SettingsError) as raised:
        read(node)
    message = str(raised.value)
    assert message.startswith(f"{key}={value}: ")
    assert allowed in message


def test_every_mistake_is_reported_at_once():
    with pytest.raises(SettingsError) as raised:
        read_settings({"limits": {"max_calls": 0, "max_turns": 1}, "dump": {"every": -1}})
    message = str(raised.value)
    assert len(message.splitlines()) == 3
    assert all(key in message for key in ("slca.limits.max_calls=0", "slca.limits.max_turns", "slca.dump.every=-1"))


def test_settings_cannot_change_after_they_were_read():
    with pytest.raises(ValueError):
        Settings().tool_prompt = "embedded"


def nodes(model: type[BaseModel]) -> list[type[BaseModel]]:
    inner = [field.annotation for field in model.model_fields.values()]
    classes = [kind for kind in inner if get_origin(kind) is None and isinstance(kind, type)]
    return [model, *(node for kind in classes if issubclass(kind, BaseModel) for node in nodes(kind))]


@pytest.mark.parametrize("model", dict.fromkeys(nodes(Settings) + nodes(AlgorithmSettings)))
def test_every_node_is_valid_by_default_and_refuses_unknown_keys(model: type[BaseModel]):
    assert model() == model.model_validate({})
    with pytest.raises(ValueError):
        model.model_validate({"no_such_setting": 1})
