"""Small writes to SQLite that wait at the same time share one transaction, in a thread of their own."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
Write = Callable[[sqlite3.Connection], Any]


class GroupCommit:
    """Writes through one connection. Use one object from one event loop.

    Neither a busy file nor a slow disk holds up the event loop, and sixty rollouts that write at once pay for
    one commit.
    """

    def __init__(self, connection: sqlite3.Connection):
        self.connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="group-commit")
        self._waiting: list[tuple[Write, asyncio.Future[Any]]] = []
        self._committing: asyncio.Task[None] | None = None

    async def run(self, write: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `write`, once it is committed. Raises what made its transaction fail."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_all())
        return await done

    async def close(self) -> None:
        """Commit what waits and close the connection."""
        if self._committing is not None:
            await self._committing
        self._thread.shutdown()
        self.connection.close()

    async def _commit_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            results: list[Any] = []
            try:
                results = await loop.run_in_executor(self._thread, self._transact, [write for write, _ in batch])
            except Exception as error:  # told to everyone who waits, or they would wait for ever
                results = [error] * len(batch)
            for (_, done), result in zip(batch, results, strict=True):
                if done.done():
                    continue  # whoever waited was cancelled
                if isinstance(result, Exception):
                    done.set_exception(result)
                else:
                    done.set_result(result)

    def _transact(self, writes: list[Write]) -> list[Any]:
        with self.connection:
            return [write(self.connection) for write in writes]
