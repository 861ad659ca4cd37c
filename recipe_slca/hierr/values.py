"""When two argument values count as the same.

Models write `10`, `"10"` and `10.0` for one value; the process reward and the simulator's replay must not
tell these apart.
"""

import json
import re
from typing import Any

NUMBER_TOLERANCE = 1e-9
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_canonical = json.JSONEncoder(sort_keys=True).encode
_TRUTH_WORDS = {"true": True, "1": True, "false": False, "0": False}


def loosely_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are loosely equal (METHOD 3).

    Both null; equal as trimmed lower-case strings; equal as numbers within 1e-9 (10, "10", 10.0); equal as
    booleans written true, false, 1 or 0; lists and objects equal as JSON with sorted keys. Null differs from
    everything else, and a list or an object from every single value.
    """
    if left is None or right is None:
        return left is right
    if type(left) is str is type(right) and left == right:
        return True  # most values of most rollouts
    left_is_nested, right_is_nested = isinstance(left, (dict, list)), isinstance(right, (dict, list))
    if left_is_nested or right_is_nested:
        return left_is_nested and right_is_nested and _equal_json(left, right)
    left_text, right_text = _written(left), _written(right)
    if left_text == right_text:
        return True
    if left_text in _TRUTH_WORDS and right_text in _TRUTH_WORDS:
        return _TRUTH_WORDS[left_text] is _TRUTH_WORDS[right_text]
    return _equal_numbers(left_text, right_text)


def _written(value: Any) -> str:
    return str(value).strip().lower()


def _equal_json(left: Any, right: Any) -> bool:
    try:
        return _canonical(left) == _canonical(right)
    except RecursionError:
        return False  # nested deeper than anybody means it


def _equal_numbers(left: str, right: str) -> bool:
    if not (_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)):
        return False
    if left.lstrip("+-").isdigit() and right.lstrip("+-").isdigit():
        # Text, not int(): whole numbers past 2**53 must not meet in a float, and int() refuses very long ones.
        return _whole_number(left) == _whole_number(right)
    return abs(float(left) - float(right)) <= NUMBER_TOLERANCE


def _whole_number(text: str) -> tuple[bool, str]:
    digits = text.lstrip("+-").lstrip("0")
    return text.startswith("-") and digits != "", digits
