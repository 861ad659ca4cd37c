"""The Ray actor that owns a cache for all workers of a run."""

import asyncio
from collections import Counter

import pytest

ray = pytest.importorskip("ray")

from recipe_slca.settings import CacheSettings  # noqa: E402
from recipe_slca.sgls.single_flight import CacheMiss, SingleFlight  # noqa: E402
from recipe_slca.sgls.sqlite_store import CacheUnusable, SqliteStore  # noqa: E402
from recipe_slca.sgls.store import MemoryStore  # noqa: E402
from recipe_slca.verl_plugin.cache_actor import ActorStore, open_cache, shared_store  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def settings(tmp_path):
    return CacheSettings(path=str(tmp_path / "answers.db"))


def test_workers_share_one_cache_and_ask_each_question_once(settings):
    owner = open_cache(settings, "simulator")
    # Two stores share nothing but the actor, as those of two workers do.
    stores = [shared_store(settings, "simulator") for _ in range(2)]
    asked = []

    async def work():
        async def ask(worker: int):
            asked.append(worker)
            await asyncio.sleep(0.3)
            return {"response": f"from {worker}", "tool": "get"}

        flights = [SingleFlight(store, Counter()) for store in stores]
        answers = await asyncio.gather(
            *(flight.answer("k", lambda n=n: ask(n)) for _ in range(4) for n, flight in enumerate(flights))
        )
        again = [await flight.answer("k", ask) for flight in flights]
        return answers, again

    answers, again = asyncio.run(work())
    assert len(asked) == 1
    expected = {"response": f"from {asked[0]}", "tool": "get"}
    assert [entry for entry, _ in answers] == [expected] * 8
    assert again == [(expected, True)] * 2
    ray.get(owner.close.remote())
    assert [(key, entry) for key, _, entry in SqliteStore(settings.path).entries()] == [("k", expected)]


def test_a_failure_gives_the_question_to_another_worker():
    owner = open_cache(CacheSettings(), "judge")  # a cache in memory, shared all the same
    first, second = (SingleFlight(shared_store(CacheSettings(), "judge"), Counter()) for _ in range(2))

    async def fail():
        raise ConnectionError("down")

    async def answer():
        return {"response": "fine"}

    async def work():
        with pytest.raises(ConnectionError):
            await first.answer("k", fail)
        return await second.answer("k", answer), await first.answer("k", fail)

    assert asyncio.run(work()) == (({"response": "fine"}, False), ({"response": "fine"}, True))
    del owner


def test_read_only_is_kept_on_the_way(settings):
    SqliteStore(settings.path).add([("k", {"response": "x"})])
    replay_only = CacheSettings(path=settings.path, mode="replay_only")
    owner = open_cache(replay_only, "replayed")
    store = shared_store(replay_only, "replayed")
    assert isinstance(store, ActorStore) and store.read_only
    flight = SingleFlight(store, Counter())

    async def work():
        assert await flight.answer("k", None) == ({"response": "x"}, True)
        with pytest.raises(CacheMiss):
            await flight.answer("missing", None)

    asyncio.run(work())
    del owner


def test_an_unusable_file_is_told_to_the_driver(settings):
    with pytest.raises(CacheUnusable, match="no cache file"):
        open_cache(CacheSettings(path=settings.path, mode="replay_only"), "other")


def test_without_an_actor_a_worker_opens_the_cache_itself(settings):
    assert isinstance(shared_store(CacheSettings(), "nobody"), MemoryStore)
    assert isinstance(shared_store(settings, "nobody"), SqliteStore)
