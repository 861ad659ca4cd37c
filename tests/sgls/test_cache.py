"""The cache file: shared by processes, safe from SIGKILL and damage, looked after from the terminal."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from recipe_slca.settings import CacheSettings
from recipe_slca.sgls import single_flight
from recipe_slca.sgls.cache import main
from recipe_slca.sgls.single_flight import CacheMiss, SingleFlight, cache_key
from recipe_slca.sgls.sqlite_store import CacheUnusable, SqliteStore, open_store
from recipe_slca.sgls.store import MemoryStore


def entry(text: str, **asked) -> dict:
    return {"response": text, **asked}


def run(work, *stores):
    async def all_of_it():
        try:
            return await work
        finally:
            for store in stores:
                await store.close()

    return asyncio.run(all_of_it())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "answers.db"


def filled(path, count: int = 3) -> None:
    store = SqliteStore(path)
    store.add([(f"key{n}", entry(f"text {n}", tool="get", model="m", arguments={"n": n})) for n in range(count)])
    run(asyncio.sleep(0), store)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, path):
    return MemoryStore() if request.param == "memory" else SqliteStore(path)


def test_the_first_answer_stays(store):
    async def work():
        assert await store.get("k") is None
        assert await store.put("k", entry("é one", tool="t")) == entry("é one", tool="t")
        assert await store.put("k", entry("two")) == entry("é one", tool="t")
        return await store.get("k")

    assert run(work(), store) == entry("é one", tool="t")


def test_a_claim_keeps_others_off_until_it_ends(store):
    async def work():
        assert await store.claim("k", 30, "me")
        assert not await store.claim("k", 30, "you")
        assert await store.claim("k", 2, "me")
        await store.release("k", "you")
        assert not await store.claim("k", 30, "you")
        await asyncio.sleep(2.1)
        assert await store.claim("k", 30, "you")
        assert not await store.claim("k", 30, "me")
        await store.release("k", "you")
        assert await store.claim("k", 30, "me")
        assert await store.claim("other", 30, "you")

    run(work(), store)


def test_two_openers_see_each_other(path):
    one, other = SqliteStore(path), SqliteStore(path)

    async def work():
        await one.put("a", entry("1"))
        await other.put("b", entry("2"))
        assert await other.get("a") == entry("1") and await one.get("b") == entry("2")

    run(work(), one, other)


def test_one_question_among_all_who_share_the_store(path):
    """Two flights on one file stand for two processes: they share nothing but the file."""
    stores = [SqliteStore(path), SqliteStore(path)]
    asked = 0

    async def ask():
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.2)
        return entry("answer")

    async def work():
        flights = [SingleFlight(store, single_flight.Counter()) for store in stores]
        return await asyncio.gather(*(flight.answer("k", ask) for flight in flights for _ in range(8)))

    answers = run(work(), *stores)
    assert asked == 1
    assert all(answer == entry("answer") for answer, _ in answers)


def test_when_the_one_who_asked_fails_another_one_asks(path):
    stores = [SqliteStore(path), SqliteStore(path)]

    async def fail():
        await asyncio.sleep(0.1)
        raise ConnectionError("down")

    async def answer():
        return entry("answer")

    async def work():
        first, second = (SingleFlight(store, single_flight.Counter()) for store in stores)
        failing = asyncio.create_task(first.answer("k", fail))
        await asyncio.sleep(0.05)
        found = await second.answer("k", answer)
        with pytest.raises(ConnectionError):
            await failing
        return found

    assert run(work(), *stores) == (entry("answer"), False)


def test_the_claim_of_a_long_question_is_renewed(path, monkeypatch):
    monkeypatch.setattr(single_flight, "CLAIM_S", 1.5)
    stores = [SqliteStore(path), SqliteStore(path)]
    asked = 0

    async def ask():
        nonlocal asked
        asked += 1
        await asyncio.sleep(2.5)
        return entry("answer")

    async def work():
        flights = [SingleFlight(store, single_flight.Counter()) for store in stores]
        await asyncio.gather(*(flight.answer("k", ask) for flight in flights))

    run(work(), *stores)
    assert asked == 1


def test_read_only_finds_writes_nothing_and_refuses_a_miss(path):
    filled(path)
    before = path.read_bytes()
    path.chmod(0o444)
    store = SqliteStore(path, read_only=True)
    flight = SingleFlight(store, single_flight.Counter())

    async def work():
        assert (await flight.answer("key1", None))[0]["response"] == "text 1"
        with pytest.raises(CacheMiss):
            await flight.answer("nothing", None)

    run(work(), store)
    assert path.read_bytes() == before


WRITER = """
import asyncio, sys
from recipe_slca.sgls.sqlite_store import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    n = 0
    while True:
        await store.put(f"{sys.argv[2]}-{n}", {"response": "x" * 2000})
        print(n, flush=True)
        n += 1
asyncio.run(main())
"""


def test_sigkill_in_the_middle_of_writing_loses_no_committed_answer(path):
    filled(path, 1)
    for round_ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(round_)], stdout=subprocess.PIPE, text=True
        )
        committed = [writer.stdout.readline() for _ in range(40 + 17 * round_)]
        os.kill(writer.pid, signal.SIGKILL)
        committed += writer.stdout.readlines()
        writer.wait()
        last = int([line for line in committed if line.endswith("\n")][-1])
        store = SqliteStore(path)
        kept = {key for key, _, _ in store.entries()}
        run(asyncio.sleep(0), store)
        assert {f"{round_}-{n}" for n in range(last + 1)} <= kept
    assert list(path.parent.glob("*.corrupt-*")) == []


SHARER = """
import asyncio, sys
from collections import Counter
from recipe_slca.sgls.single_flight import SingleFlight
from recipe_slca.sgls.sqlite_store import SqliteStore
async def main():
    store = SqliteStore(sys.argv[1])
    flight = SingleFlight(store, Counter())
    async def ask():
        print("asked", flush=True)
        await asyncio.sleep(0.01)
        return {"response": sys.argv[2]}
    answers = [(await flight.answer(f"k{n}", ask))[0]["response"] for n in range(60)]
    await store.close()
    print("".join(answers))
asyncio.run(main())
"""


def test_processes_ask_each_question_once_and_agree(path):
    workers = [
        subprocess.Popen([sys.executable, "-c", SHARER, str(path), name], stdout=subprocess.PIPE, text=True)
        for name in "abc"
    ]
    outputs = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert sum(output.count("asked") for output in outputs) == 60
    assert len({output[-1] for output in outputs}) == 1


@pytest.mark.parametrize("damage", ["text", "head", "middle", "cut"])
def test_a_damaged_file_is_set_aside_not_trusted_and_not_deleted(path, damage, caplog):
    filled(path, 2000)
    whole = path.read_bytes()
    half = len(whole) // 2
    damaged = {
        "text": b"this is not a database\n" * 100,
        "head": b"\x00" * 100 + whole[100:],
        "middle": whole[:4096] + os.urandom(half) + whole[4096 + half :],
        "cut": whole[:half],
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(CacheUnusable, match="cannot read"):
        SqliteStore(path, read_only=True)
    store = SqliteStore(path)
    assert list(store.entries()) == []
    run(store.put("k", entry("new")), store)
    (aside,) = path.parent.glob("*.corrupt-1")
    assert aside.read_bytes() == damaged
    assert str(path) in caplog.text and "damaged" in caplog.text and str(aside) in caplog.text


def test_a_second_damaged_file_is_kept_beside_the_first(path):
    for n in (1, 2):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"damage %d" % n * 200)
        run(asyncio.sleep(0), SqliteStore(path))
    assert len(list(path.parent.glob("*.corrupt-*"))) == 2


def test_files_of_others_are_left_alone(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE precious (x)")
    theirs.close()
    before = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(CacheUnusable, match="another program"):
            SqliteStore(path, read_only=read_only)
    assert path.read_bytes() == before


def test_unusable_paths_are_explained(path, tmp_path):
    with pytest.raises(CacheUnusable, match="no cache file"):
        SqliteStore(path, read_only=True)
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(CacheUnusable, match="folder.db"):
        SqliteStore(tmp_path / "folder.db")
    with pytest.raises(CacheUnusable, match="cache.path"):
        open_store(CacheSettings(mode="replay_only"))


def test_a_path_with_odd_characters(tmp_path):
    path = tmp_path / "a b?c#d%20" / "é?.db"
    run(SqliteStore(path).put("k", entry("x")))
    assert path.is_file()


def test_key_is_of_the_content():
    assert cache_key({"a": 1, "b": [2]}) == cache_key({"b": [2], "a": 1}) != cache_key({"a": 1, "b": [3]})
    assert len(cache_key({"a": "\ud800"})) == 64


def test_export_and_import_are_inverse(path, tmp_path, capsys):
    filled(path)
    copy, lines = tmp_path / "copy.db", tmp_path / "answers.jsonl"
    assert main(["export", str(path), str(lines)]) == 0
    assert [json.loads(line)["key"] for line in lines.read_text().splitlines()] == ["key0", "key1", "key2"]
    assert main(["import", str(copy), str(lines)]) == 0
    assert "3 answers added, 0 were there already, 0 lines left out" in capsys.readouterr().out
    assert main(["import", str(copy), str(lines)]) == 0
    assert "0 answers added, 3 were there already" in capsys.readouterr().out
    assert main(["export", str(copy)]) == 0
    assert capsys.readouterr().out == lines.read_text()


def test_import_leaves_out_what_is_no_answer_and_says_where(path, tmp_path, capsys):
    lines = tmp_path / "answers.jsonl"
    lines.write_text('{"key": "a", "response": "x"}\n{"key": "b"\n[1]\n{"key": "c", "response": 3}\n')
    assert main(["import", str(path), str(lines)]) == 1
    told = capsys.readouterr()
    assert "1 answers added, 0 were there already, 3 lines left out" in told.out
    assert [line.split(":")[0] for line in told.err.splitlines()] == ["line 2", "line 3", "line 4"]


def test_stats(path, capsys):
    filled(path)
    assert main(["stats", str(path)]) == 0
    told = capsys.readouterr().out
    assert "answers     3 (18 characters)" in told and "get" in told and str(path) in told


def test_prune(path, capsys):
    filled(path)
    with sqlite3.connect(path) as by_hand:
        by_hand.execute("UPDATE answers SET created = '2020-01-01T00:00:00Z' WHERE key = 'key1'")
    by_hand.close()
    assert main(["prune", str(path), "--older-than-days", "30"]) == 0
    assert "1 answers removed" in capsys.readouterr().out
    assert main(["prune", str(path), "--older-than-days", "30"]) == 0
    assert "0 answers removed" in capsys.readouterr().out


def test_commands_on_a_file_that_is_not_there(path, capsys):
    for arguments in (["stats"], ["export"], ["prune", "--older-than-days", "1"]):
        assert main([arguments[0], str(path), *arguments[1:]]) == 1
        assert str(path) in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("module", ["cache", "probe"])
def test_help_loads_nothing_heavy(module):
    script = (
        f"import sys, recipe_slca.sgls.{module} as command\n"
        "try:\n    command.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*({'torch', 'transformers', 'openai', 'ray', 'verl', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "usage" in done.stdout and done.stderr.strip() == ""
    done = subprocess.run(
        [sys.executable, "-m", f"recipe_slca.sgls.{module}", "--help"], capture_output=True, check=True
    )
    assert done.stderr == b""


def test_a_failed_write_is_told_to_all_who_wait(path):
    store = SqliteStore(path)

    async def work():
        writes = (store.put("a", entry("x")), store.put("b", {"no": "response"}))
        return await asyncio.gather(*writes, return_exceptions=True), await store.put("c", entry("y"))

    failed, written = run(work(), store)
    assert [type(error) for error in failed] == [KeyError, KeyError]
    assert written == entry("y")
