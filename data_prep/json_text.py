"""JSON as this project reads and writes it, and JSON values that some sources write as Python literals."""

import ast
import json
import math
import warnings
from typing import Any

import orjson

# orjson rounds integers of more than 64 bits, which have at least 19 digits.
_ONLY_DIGITS = bytes(48 if chr(byte).isascii() and chr(byte).isdigit() else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number} is too large")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def loads(text: str) -> Any:
    """Read strict JSON of finite numbers, with every failure a `ValueError`, deep nesting included."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def loads_texts(text: str) -> Any:
    """Read strict JSON fast, for values whose numbers do not count: a very long one is rounded.

    Raises `ValueError`.
    """
    return orjson.loads(text)


def loads_exactly(text: str) -> Any:
    """Read strict JSON fast, numbers of any length exactly. Raises `ValueError`."""
    if _LONG_NUMBER not in text.encode(errors="surrogatepass").translate(_ONLY_DIGITS):
        try:
            return orjson.loads(text)
        except ValueError:
            pass  # it also refuses half characters, which JSON allows
    return loads(text)


def to_json(value: Any) -> str:
    """Write a value that came from JSON as one line of compact JSON. Raises `ValueError` for NaN and infinity."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # an integer of more than 64 bits
        return _encode(value)
    if "null" in text:  # orjson writes it for NaN and infinity too
        _encode(value)
    return text


def loads_json_or_literal(text: str) -> Any:
    """Read strict JSON, or else a Python literal (never evaluated) that JSON can hold. Raises `ValueError`."""
    try:
        return loads(text)
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return loads(json.dumps(ast.literal_eval(text.strip())))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("neither JSON nor a Python literal") from error
