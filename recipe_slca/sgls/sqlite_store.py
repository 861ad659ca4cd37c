"""Answers kept in one SQLite file, shared by the processes of a node.

The file is in WAL mode: readers never wait, and a process that is killed in the middle of a write leaves a
file with every committed answer. WAL needs shared memory, so the file must be on a local disk; for several
nodes one process owns it (`recipe_slca.verl_plugin.cache_actor`). Readable by hand:

    sqlite3 answers.db "SELECT response, asked FROM answers LIMIT 5"
"""

import fcntl
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recipe_slca.settings import CacheSettings
from recipe_slca.sgls.group_commit import GroupCommit
from recipe_slca.sgls.store import Entry, MemoryStore, Store

APPLICATION_ID = 0x534C4341  # "SLCA"
BUSY_TIMEOUT_S = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, response TEXT NOT NULL, asked TEXT NOT NULL,
    created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL);
"""
_CLAIM = """
INSERT INTO claims VALUES (:key, :owner, :until)
ON CONFLICT (key) DO UPDATE SET owner = :owner, until = :until WHERE owner = :owner OR until < :now
"""
_log = logging.getLogger(__name__)


class CacheUnusable(RuntimeError):
    """The cache file cannot be used; the message says which, why, and what to do."""


class SqliteStore:
    """A `Store` in the SQLite file at `path`.

    read_only: opens an existing file without ever writing to it.
    A damaged file is renamed to `<path>.corrupt-<n>` with a warning and a new one is begun; a damaged file
    opened read-only, a missing one, and a file of another kind raise `CacheUnusable`.
    """

    def __init__(self, path: str | Path, read_only: bool = False):
        self.path = Path(path)
        self.read_only = read_only
        self._reader = _open_to_read(self.path) if read_only else _open_to_write(self.path)
        self._writes = None if read_only else GroupCommit(_connect(self.path))

    async def get(self, key: str) -> Entry | None:
        try:
            row = self._reader.execute("SELECT response, asked FROM answers WHERE key = ?", (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise CacheUnusable(f"cannot read the cache {self.path}: {error}; a restart sets it aside") from error
        return None if row is None else {"response": row[0], **json.loads(row[1])}

    async def put(self, key: str, entry: Entry) -> Entry:
        try:
            first = await self._writer.run(lambda connection: _insert(connection, [(key, entry)]))
        except sqlite3.OperationalError as error:
            # A full disk costs the cache, not the answer.
            _log.warning("answer not kept in %s: %s", self.path, error)
            return entry
        return entry if first else await self.get(key) or entry

    async def claim(self, key: str, seconds: float, owner: str) -> bool:
        now = time.time()
        values = {"key": key, "owner": owner, "now": now, "until": now + seconds}
        try:
            return await self._writer.run(lambda connection: connection.execute(_CLAIM, values).rowcount > 0)
        except sqlite3.OperationalError as error:
            _log.warning("no claim in %s, asking without one: %s", self.path, error)
            return True

    async def release(self, key: str, owner: str) -> None:
        delete = "DELETE FROM claims WHERE key = ? AND owner = ?"
        try:
            await self._writer.run(lambda connection: connection.execute(delete, (key, owner)).rowcount)
        except sqlite3.OperationalError as error:
            _log.warning("claim not released in %s, it ends by itself: %s", self.path, error)

    async def close(self) -> None:
        if self._writes is not None:
            await self._writes.close()
        self._reader.close()

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Every key, time of creation (ISO 8601, UTC) and entry, in the order of the keys."""
        for key, created, response, asked in self._reader.execute(
            "SELECT key, created, response, asked FROM answers ORDER BY key"
        ):
            yield key, created, {"response": response, **json.loads(asked)}

    def add(self, entries: list[tuple[str, Entry]]) -> int:
        """Keep many answers in one transaction; returns how many were new."""
        with self._writer.connection as connection:
            return _insert(connection, entries)

    def remove_older_than(self, days: float) -> int:
        """Remove answers made more than so many days ago, and give the space back; returns how many."""
        with self._writer.connection as connection:
            removed = connection.execute(
                "DELETE FROM answers WHERE created < strftime('%Y-%m-%dT%H:%M:%SZ', 'now', ?)", (f"-{days:f} days",)
            ).rowcount
            connection.execute("DELETE FROM claims WHERE until < ?", (time.time(),))
        connection.execute("VACUUM")
        return removed

    @property
    def _writer(self) -> GroupCommit:
        if self._writes is None:
            raise CacheUnusable(f"the cache {self.path} is open for reading only")
        return self._writes


def _insert(connection: sqlite3.Connection, entries: list[tuple[str, Entry]]) -> int:
    """Insert what is new, ending the claims on it; returns how many were new."""
    rows = [
        (key, entry["response"], json.dumps({name: entry[name] for name in entry if name != "response"}))
        for key, entry in entries
    ]
    connection.executemany("DELETE FROM claims WHERE key = ?", [row[:1] for row in rows])
    return connection.executemany(
        "INSERT OR IGNORE INTO answers (key, response, asked) VALUES (?, ?, ?)", rows
    ).rowcount


def open_store(settings: CacheSettings) -> Store:
    """The store that the settings name. Raises `CacheUnusable`."""
    if settings.path:
        return SqliteStore(settings.path, read_only=settings.mode == "replay_only")
    if settings.mode == "replay_only":
        raise CacheUnusable("cache.mode=replay_only needs cache.path: the file that an earlier run has written")
    return MemoryStore()


def _connect(path: Path, options: str = "") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}{options}", uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False
    )
    # A crash of the process loses nothing; a crash of the machine may lose the last answers, not the file.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _open_to_write(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _one_opener(path):
        try:
            return _prepared(path)
        except sqlite3.OperationalError as error:
            raise CacheUnusable(f"cannot open the cache {path}: {error}") from error
        except sqlite3.DatabaseError as error:
            _set_aside(path, error)
            return _prepared(path)


def _open_to_read(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise CacheUnusable(f"no cache file {path}: a replay_only run needs the cache of an earlier run")
    try:
        # Beside a file that nobody has open there is no -wal file, and a read-only folder allows none.
        live = Path(f"{path}-wal").exists() or os.access(path.parent, os.W_OK)
        connection = _connect(path, "?mode=ro" if live else "?mode=ro&immutable=1")
        _check(path, connection)
    except sqlite3.DatabaseError as error:
        raise CacheUnusable(f"cannot read the cache {path}: {error}") from error
    return connection


def _prepared(path: Path) -> sqlite3.Connection:
    connection = _connect(path)
    try:
        if connection.execute("PRAGMA schema_version").fetchone()[0]:
            _check(path, connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.executescript(_TABLES)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Raise `sqlite3.DatabaseError` for a damaged file, `CacheUnusable` for somebody else's."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise CacheUnusable(f"{path} is a SQLite file of another program: give slca.*.cache.path another name")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _set_aside(path: Path, error: Exception) -> None:
    number = 1
    while (aside := Path(f"{path}.corrupt-{number}")).exists():
        number += 1
    for ending in ("", "-wal", "-shm"):
        part = Path(f"{path}{ending}")
        if part.exists():
            part.rename(f"{aside}{ending}")
    _log.warning("the cache %s is damaged (%s): kept as %s, and a new one is begun", path, error, aside)


@contextmanager
def _one_opener(path: Path) -> Iterator[None]:
    """Only one process at a time checks, sets aside and creates the file."""
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
