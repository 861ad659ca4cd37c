"""Gold calls in every layout, and errors that say what is wrong."""

import json

import numpy as np
import pytest

from recipe_slca.hierr.gold import read_gold

A = {"name": "a", "arguments": {"x": 1}}
B = {"name": "b", "arguments": {}}


@pytest.mark.parametrize(
    ("layout", "steps"),
    [
        ([[A, B], [A]], [[A, B], [A]]),
        ([A, B], [[A], [B]]),
        (["a", "b"], [[{"name": "a", "arguments": {}}], [{"name": "b", "arguments": {}}]]),
        ([["a", "b"]], [[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]]),
        ([[A], B], [[A], [B]]),
        ([[], [A], []], [[A]]),
        ([{"name": "a", "arguments": '{"x": 1}'}], [[A]]),
        ([{"name": "a", "parameters": {"x": 1}}], [[A]]),
        ([{"name": "b"}], [[B]]),
        (np.array(["a"], dtype=object), [[{"name": "a", "arguments": {}}]]),
        (np.array([[A]], dtype=object), [[A]]),
        ((A,), [[A]]),
        ([], []),
        (None, []),
        ("", []),
        ("[]", []),
    ],
)
def test_layouts(layout, steps):
    assert read_gold(layout) == steps
    if isinstance(layout, list):
        assert read_gold(json.dumps(layout)) == steps


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("[[{", "not JSON"),
        ("{}", "must be a list"),
        (7, "must be a list"),
        ({"name": "a"}, "must be a list"),
        ([[A, 3]], "step 0, call 1: not_a_call: 3"),
        ([A, {"arguments": {}}], "entry 1: missing_name"),
        ([[{"name": "a", "arguments": [1]}]], "step 0, call 0: arguments_not_object"),
        ([""], "entry 0: missing_name"),
        ([["a", ["b"]]], "step 0, call 1: not_a_call"),
    ],
)
def test_unreadable_gold_is_named(layout, message):
    with pytest.raises(ValueError, match="gold calls") as error:
        read_gold(layout)
    assert message in str(error.value)


def test_a_message_stays_short():
    with pytest.raises(ValueError) as error:
        read_gold([["a", {"arguments": "x" * 100_000}]])
    assert len(str(error.value)) < 400
