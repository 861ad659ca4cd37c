"""One Ray actor owns a cache, so that all workers of a run share it on all nodes.

SQLite's WAL files cannot be shared between machines; the actor is the one process that has them open. It
also makes a cache in memory common to all workers, and lets only one of them ask a question.

The driver opens the actor on its own node (`open_cache`), workers find it by name (`shared_store`). Without
it, as in a unit test of one loop, a worker opens the cache itself.
"""

from collections import OrderedDict

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from recipe_slca.settings import CacheSettings
from recipe_slca.sgls.sqlite_store import CacheUnusable, open_store
from recipe_slca.sgls.store import Entry, Store

ENTRIES_KEPT = 10_000


class CacheActor:
    """A `Store` that others call from afar; it opens what the settings name. Raises `CacheUnusable`."""

    def __init__(self, settings: CacheSettings):
        self._store = open_store(settings)

    async def get(self, key: str) -> Entry | None:
        return await self._store.get(key)

    async def put(self, key: str, entry: Entry) -> Entry:
        return await self._store.put(key, entry)

    async def claim(self, key: str, seconds: float, owner: str) -> bool:
        return await self._store.claim(key, seconds, owner)

    async def release(self, key: str, owner: str) -> None:
        await self._store.release(key, owner)

    async def close(self) -> None:
        await self._store.close()


class ActorStore:
    """The `Store` of a worker: asks the actor, and remembers the last `ENTRIES_KEPT` answers, which never change."""

    def __init__(self, actor: ActorHandle, read_only: bool):
        self.read_only = read_only
        self._actor = actor
        self._seen: OrderedDict[str, Entry] = OrderedDict()

    async def get(self, key: str) -> Entry | None:
        if key in self._seen:
            self._seen.move_to_end(key)
            return self._seen[key]
        entry = await self._actor.get.remote(key)
        return None if entry is None else self._remember(key, entry)

    async def put(self, key: str, entry: Entry) -> Entry:
        return self._remember(key, await self._actor.put.remote(key, entry))

    async def claim(self, key: str, seconds: float, owner: str) -> bool:
        return await self._actor.claim.remote(key, seconds, owner)

    async def release(self, key: str, owner: str) -> None:
        await self._actor.release.remote(key, owner)

    async def close(self) -> None:
        """The actor outlives its workers; the driver that opened it closes it."""

    def _remember(self, key: str, entry: Entry) -> Entry:
        self._seen[key] = entry
        if len(self._seen) > ENTRIES_KEPT:
            self._seen.popitem(last=False)
        return entry


def open_cache(settings: CacheSettings, service: str) -> ActorHandle:
    """Start the actor that owns the cache of a service ("simulator", "judge") on the caller's node.

    Keep the handle: the actor ends with it. Raises `CacheUnusable` when the file cannot be used.
    """
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), False)
    options = {"name": _actor_name(service), "num_cpus": 0, "scheduling_strategy": here}
    actor = ray.remote(CacheActor).options(**options).remote(settings)
    try:
        ray.get(actor.get.remote(""))
    except RayActorError as error:
        raise CacheUnusable(f"the cache of the {service} cannot be opened: {error}") from error
    return actor


def shared_store(settings: CacheSettings, service: str) -> Store:
    """The store to give to the service in this worker. Raises `CacheUnusable`."""
    try:
        actor = ray.get_actor(_actor_name(service)) if ray.is_initialized() else None
    except ValueError:
        actor = None
    return ActorStore(actor, settings.mode == "replay_only") if actor else open_store(settings)


def _actor_name(service: str) -> str:
    return f"slca_cache_{service}"
