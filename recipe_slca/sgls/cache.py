"""Look after a cache of answers from the terminal.

python -m recipe_slca.sgls.cache stats  PATH
python -m recipe_slca.sgls.cache export PATH [FILE]     one JSON object a line, to FILE or standard output
python -m recipe_slca.sgls.cache import PATH [FILE]     from FILE or standard input; an answer already there stays
python -m recipe_slca.sgls.cache prune  PATH --older-than-days N
"""

import argparse
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TextIO

from recipe_slca.sgls.sqlite_store import CacheUnusable, SqliteStore
from recipe_slca.sgls.store import Entry
from recipe_slca.tool_calls import loads

_IMPORTED_AT_ONCE = 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _read_options(arguments)
    try:
        return _COMMANDS[options.command](options)
    except (CacheUnusable, OSError, sqlite3.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _stats(options: argparse.Namespace) -> int:
    store = SqliteStore(options.path, read_only=True)
    tools: Counter[str] = Counter()
    models: Counter[str] = Counter()
    characters = 0
    times: list[str] = []
    for _, created, entry in store.entries():
        tools[str(entry.get("tool"))] += 1
        models[str(entry.get("model"))] += 1
        characters += len(entry["response"])
        times = [min([created, *times]), max([created, *times])]
    print(f"file        {options.path} ({os.path.getsize(options.path)} bytes)")
    print(f"answers     {tools.total()} ({characters} characters)")
    print(f"made        {' to '.join(times) or '-'} (UTC)")
    for title, counted in (("model", models), ("tool", tools)):
        for name, count in counted.most_common(10):
            print(f"{title:<11} {count:>8}  {json.dumps(name, ensure_ascii=False)[1:-1]}")
    return 0


def _export(options: argparse.Namespace) -> int:
    store = SqliteStore(options.path, read_only=True)
    with ExitStack() as stack:
        file: TextIO = stack.enter_context(open(options.file, "w", encoding="utf-8")) if options.file else sys.stdout
        for key, _, entry in store.entries():
            print(json.dumps({"key": key, **entry}, sort_keys=True), file=file)
    return 0


def _import(options: argparse.Namespace) -> int:
    store = SqliteStore(options.path)
    read = added = unreadable = 0
    with ExitStack() as stack:
        file: TextIO = stack.enter_context(open(options.file, encoding="utf-8")) if options.file else sys.stdin
        batch: list[tuple[str, Entry]] = []
        for number, line in enumerate(file, 1):
            entry = _read_line(line)
            if entry is None:
                unreadable += 1
                print(f"line {number}: not an exported answer, left out", file=sys.stderr)
                continue
            read += 1
            batch.append(entry)
            if len(batch) == _IMPORTED_AT_ONCE:
                added += store.add(batch)
                batch = []
        added += store.add(batch)
    print(f"{added} answers added, {read - added} were there already, {unreadable} lines left out")
    return 1 if unreadable else 0


def _read_line(line: str) -> tuple[str, Entry] | None:
    try:
        entry = loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in ("key", "response")):
        return None
    return entry.pop("key"), entry


def _prune(options: argparse.Namespace) -> int:
    if not os.path.isfile(options.path):
        raise CacheUnusable(f"no cache file {options.path}")
    removed = SqliteStore(options.path).remove_older_than(options.older_than_days)
    print(f"{removed} answers removed")
    return 0


_COMMANDS = {"stats": _stats, "export": _export, "import": _import, "prune": _prune}


def _read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m recipe_slca.sgls.cache", description="Look after a cache.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, purpose in {
        "stats": "what the cache holds",
        "export": "write every answer, one JSON object a line",
        "import": "add exported answers; an answer already there stays",
        "prune": "remove old answers",
    }.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.add_argument("path", help="the SQLite file")
        if name in ("export", "import"):
            command.add_argument("file", nargs="?", help="a JSONL file; standard output or input without it")
        if name == "prune":
            command.add_argument("--older-than-days", type=float, required=True, metavar="N")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
