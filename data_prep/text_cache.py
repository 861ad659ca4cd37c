"""Remember what was made of texts, in bounded memory."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class TextCache(Generic[Made]):
    """Calls `make(text)` once for each text, as long as the text is among the most recent `chars` characters."""

    def __init__(self, make: Callable[[str], Made], chars: int):
        self._make = make
        self._room = chars
        self._made: OrderedDict[str, Made] = OrderedDict()

    def __call__(self, text: str) -> Made:
        if text in self._made:
            self._made.move_to_end(text)
            return self._made[text]
        made = self._made[text] = self._make(text)
        self._room -= len(text)
        while self._room < 0:
            self._room += len(self._made.popitem(last=False)[0])
        return made
