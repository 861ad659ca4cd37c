"""Ask for each distinct answer once, however many rollouts want it at the same time."""

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from recipe_slca.sgls.health import SimulatorDown
from recipe_slca.sgls.store import Entry, Store
from recipe_slca.sgls.tools import canonical_json

CLAIM_S = 30.0
"""A claim lasts this long and is renewed while the asking goes on: a killed worker holds up nobody for longer."""
FIRST_LOOK_S = 0.02
LONGEST_LOOK_S = 1.0


class CacheMiss(SimulatorDown):
    """A replay-only run asked for an answer that its cache does not have."""


class SingleFlight:
    """Looks answers up in a store, and asks for a missing one once among all who share the store.

    counts: gets `cache_hits`, `cache_misses`, and `cache_shared` for those who waited for another's question.
    """

    def __init__(self, store: Store, counts: Counter[str]):
        self._store = store
        self._counts = counts
        self._owner = uuid.uuid4().hex
        self._under_way: dict[str, asyncio.Task[Entry]] = {}

    async def answer(self, key: str, ask: Callable[[], Awaitable[Entry]]) -> tuple[Entry, bool]:
        """The entry of a key, and whether it was there already. A failure of `ask` is raised and never kept.

        Raises `CacheMiss` when the store is read-only and has no entry.
        """
        entry = await self._store.get(key)
        if entry is not None:
            self._counts["cache_hits"] += 1
            return entry, True
        if self._store.read_only:
            raise CacheMiss(f"no answer for key {key} in a replay-only cache")
        task = self._under_way.get(key)
        if task is None:
            self._counts["cache_misses"] += 1
            task = asyncio.create_task(self._find(key, ask))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._landed(key, done))
        else:
            self._counts["cache_shared"] += 1
        # Shielded: when one rollout is cancelled, the others still get their answer.
        return await asyncio.shield(task), False

    def _landed(self, key: str, task: "asyncio.Task[Entry]") -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # seen here, in case every rollout that waited is gone

    async def _find(self, key: str, ask: Callable[[], Awaitable[Entry]]) -> Entry:
        look = FIRST_LOOK_S
        while not await self._store.claim(key, CLAIM_S, self._owner):
            await asyncio.sleep(look)
            look = min(LONGEST_LOOK_S, look * 1.5)
            if (entry := await self._store.get(key)) is not None:
                return entry
        renewal = _Renewal(CLAIM_S / 3, lambda: self._store.claim(key, CLAIM_S, self._owner))
        try:
            # Another one may have put it between our look and our claim; putting it again ends our claim.
            entry = await self._store.get(key)
            return await self._store.put(key, entry if entry is not None else await ask())
        except BaseException:
            await self._store.release(key, self._owner)
            raise
        finally:
            renewal.cancel()


class _Renewal:
    """Does something again and again until cancelled; costs next to nothing as long as its time has not come."""

    def __init__(self, seconds: float, renew: Callable[[], Awaitable[Any]]):
        self._seconds = seconds
        self._renew = renew
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def cancel(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while True:
            await self._renew()
            await asyncio.sleep(self._seconds)


def cache_key(asked: dict[str, Any]) -> str:
    """The key of a question: the SHA-256 of its canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(asked).encode("utf-8", "replace")).hexdigest()
