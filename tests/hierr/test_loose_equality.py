"""`loosely_equal` beyond the hand-worked cases: its algebra, and values that break naive comparisons."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe_slca.hierr.values import loosely_equal

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


@given(VALUES)
def test_every_value_equals_itself_and_its_json_copy(value):
    assert loosely_equal(value, value)
    assert loosely_equal(value, json.loads(json.dumps(value)))


@given(VALUES, VALUES)
def test_order_of_the_two_does_not_matter(left, right):
    assert loosely_equal(left, right) == loosely_equal(right, left)


@given(VALUES)
def test_null_equals_null_alone(value):
    assert loosely_equal(None, value) == (value is None)


@given(st.integers())
def test_numbers_equal_their_text(number):
    assert loosely_equal(number, str(number))
    assert loosely_equal(number, f" {number} ")
    assert not loosely_equal(number, number + 1)


@given(st.dictionaries(st.text(max_size=3), SCALARS, min_size=1, max_size=4))
def test_key_order_does_not_matter(value):
    assert loosely_equal(value, dict(reversed(value.items())))


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (2**53, 2**53 + 1, False),
        (10**400, "1" + "0" * 400, True),
        (10**400, 1e308, False),
        ("1e999", "1e998", False),
        ("1_000", 1000, False),
        ("٣", 3, False),
        (-0.0, 0, True),
        ("+5", 5, True),
        (".5", 0.5, True),
        ("nan", "NaN", True),
        (float("inf"), float("inf"), True),
        ("true", 1, True),
        (True, 1.0, False),
        (True, 2, False),
        ([1], [1.0], False),
        ([], {}, False),
        ("", [], False),
    ],
)
def test_awkward_pairs(left, right, equal):
    assert loosely_equal(left, right) is equal


def test_values_nested_too_deeply_differ_instead_of_raising():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert not loosely_equal(deep, [deep])
