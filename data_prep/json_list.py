"""The elements of a JSON list of any length, read one at a time."""

import json
from collections.abc import Iterator
from typing import Any, TextIO

_CHUNK_CHARS = 1 << 20
_MAX_ELEMENT_CHARS = 128_000_000
_SPACE = " \t\r\n"
_AFTER_ELEMENT = ",]" + _SPACE


def iterate_json_list(file: TextIO) -> Iterator[Any]:
    """Yield the elements of the list that `file` holds; a file with one object yields that object.

    Memory is bounded by the largest element. Raises `ValueError` where the text is not JSON.
    """
    decoder = json.JSONDecoder()
    buffer = file.read(_CHUNK_CHARS).lstrip(_SPACE + "\ufeff")
    if not buffer.startswith("["):
        value, _ = _decode(decoder, buffer + file.read(_MAX_ELEMENT_CHARS), 0)
        if value is None:
            raise ValueError("the text is neither a list nor an object")
        yield value
        return
    position, expected = 1, "element"
    while True:
        position = _skip_space(buffer, position)
        ended = position == len(buffer)
        if not ended and expected == "separator":
            if buffer[position] == "]":
                return
            if buffer[position] != ",":
                raise ValueError(f"found {buffer[position]!r} between two elements")
            position, expected = position + 1, "element"
            continue
        if not ended and buffer[position] == "]":
            return
        value, end = _decode(decoder, buffer, position)
        # What is not followed by a separator may be a number that goes on in the file, so it is read again.
        if end is None or end == len(buffer) or buffer[end] not in _AFTER_ELEMENT:
            if len(buffer) - position > _MAX_ELEMENT_CHARS:
                raise ValueError(f"an element is broken, or longer than {_MAX_ELEMENT_CHARS} characters")
            more = file.read(max(_CHUNK_CHARS, len(buffer) - position))
            if more:
                buffer, position = buffer[position:] + more, 0
                continue
            if end is None:
                raise ValueError("the list breaks off")
        yield value
        position, expected = end, "separator"


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _decode(decoder: json.JSONDecoder, text: str, position: int) -> tuple[Any, int | None]:
    try:
        return decoder.raw_decode(text, position)
    except RecursionError as error:
        raise ValueError("an element is nested too deeply") from error
    except ValueError:
        return None, None
