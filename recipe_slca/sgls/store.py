"""Where answers are kept: the interface, and the store of one process's memory.

A store holds JSON objects by key. The first answer to a key stays: who comes second is given the first
one's answer, so that all rollouts see one world.
"""

import time
from typing import Any, Protocol

Entry = dict[str, Any]
"""`{"response": str, ...}`; the other fields tell a reader of the file what was asked."""


class Store(Protocol):
    """Answers by key, shared by everyone who opened it."""

    read_only: bool

    async def get(self, key: str) -> Entry | None:
        """The answer, or None."""
        ...

    async def put(self, key: str, entry: Entry) -> Entry:
        """Keep an answer and return the one that counts: an earlier one of the same key stays. Ends the claim."""
        ...

    async def claim(self, key: str, seconds: float, owner: str) -> bool:
        """Whether `owner` is to find the answer; False while another one's claim lasts. Claiming again renews."""
        ...

    async def release(self, key: str, owner: str) -> None:
        """Give a claim up, so that another may try."""
        ...

    async def close(self) -> None:
        """Finish what is under way."""
        ...


class MemoryStore:
    """Answers of one process, lost when it ends."""

    read_only = False

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._claims: dict[str, tuple[str, float]] = {}

    async def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    async def put(self, key: str, entry: Entry) -> Entry:
        self._claims.pop(key, None)
        return self._entries.setdefault(key, entry)

    async def claim(self, key: str, seconds: float, owner: str) -> bool:
        now = time.monotonic()
        holder, until = self._claims.get(key, (owner, now))
        if holder != owner and until > now:
            return False
        self._claims[key] = owner, now + seconds
        return True

    async def release(self, key: str, owner: str) -> None:
        if self._claims.get(key, ("", 0.0))[0] == owner:
            del self._claims[key]

    async def close(self) -> None:
        pass
