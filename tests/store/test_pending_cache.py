"""The pending cache: a pass rereads only changed sessions, and over several passes every session
gets its hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.group_options import GroupOptions
from moorage.common.model.ids import SessionId
from moorage.common.model.paging import Paging
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling import Pending, Policy, plan
from moorage.manager.store import Store
from moorage.manager.store.database.connections import Database, DedicatedConnection
from moorage.manager.store.scheduling import hold_writer, pending_cache
from tests.clocks import StoreClock

from .conftest import FakeAgent, reconcile_all, schedule, stop

SYSTEM = Scope.system()


async def add(store: Store, name: str, **more: object) -> None:
    spec = SessionSpec.model_validate(
        {"command": ["x"], "resources": {"cuda.device": 1}, "name": name} | more
    )
    await store.sessions.create(Scope.system("t"), spec)


async def read_all(store: Store) -> dict[SessionId, Pending]:
    # It keeps nothing that it does not use.
    asked = pending_cache.PendingCache(store.database, StoreClock(), store.unreadable)
    return {one.session_id: one for one in (await asked.of("default"))[0]}


async def seen(store: Store) -> dict[SessionId, Pending]:
    return {one.session_id: one for one in (await store.scheduling.snapshot("default")).pending}


async def names(store: Store) -> set[str]:
    views = {v.id: v for v in (await store.sessions.page(SYSTEM, Paging(500))).items}
    return {views[session_id].name for session_id in await seen(store)}


async def retry(store: Store, agent: FakeAgent) -> None:
    """Fail the start of placed sessions, which become pending again."""
    for view in (await store.sessions.page(SYSTEM, statuses=frozenset({Status.SCHEDULED}))).items:
        agent.see(view.kernels[0].id, ObservedState.EXITED, reason=Reason.PORT_TAKEN)
    await agent.report()
    await reconcile_all(store)


async def test_cached_sessions_equal_a_full_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache follows notifications alone, because it is not compared with the database for an
    hour."""
    monkeypatch.setattr(pending_cache, "REREAD_S", 3600.0)
    agent = FakeAgent(store, gpus=2)
    await agent.report()
    await FakeAgent(store, "node-2", gpus=0).report()
    for n in range(6):
        await add(store, f"s{n}")

    await add(store, "after", depends_on=["s0"])
    await store.groups.put("other", GroupOptions(), actor="t")
    await add(store, "elsewhere", resource_group="other")

    for change in (
        None,
        lambda: add(store, "late"),
        lambda: stop(store, "s3", actor="t"),
        lambda: schedule(store),
        lambda: schedule(store),  # counts a refusal for the waiting sessions
        lambda: retry(store, agent),
        lambda: stop(store, "s0", actor="t"),
        lambda: reconcile_all(store),  # "after" ends with the session it depends on
        lambda: add(store, "later", starts_at="2100-01-01T00:00:00Z"),
    ):
        if change is not None:
            await change()
        assert await seen(store) == await read_all(store)

    assert await names(store) == {"s1", "s2", "s4", "s5", "late"}
    assert {p.retries for p in (await seen(store)).values()} == {0, 1}


async def test_session_of_a_rejected_placement_is_reread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_cache, "REREAD_S", 3600.0)
    await FakeAgent(store).report()
    await add(store, "one")
    snapshot = await store.scheduling.snapshot("default")

    # without a notification
    await store.database.fetch("UPDATE sessions SET revision = revision + 1")
    term = await store.leases.acquire("test", 60)
    assert await store.scheduling.place(plan(snapshot, Policy()).places, term or 0) == 0
    assert [p.revision for p in (await seen(store)).values()] == [2]


@pytest.mark.parametrize("reconnected", [False, True])
async def test_unplaced_session_is_reported_as_changed(store: Store, reconnected: bool) -> None:
    """Otherwise, readers of the plan, such as the decision log, would assume that the session was
    placed."""
    await FakeAgent(store).report()
    await add(store, "one")
    snapshot = await store.scheduling.snapshot("default")
    made = plan(snapshot, Policy())
    assert await store.scheduling.place(made.places, term=0) == 0, "nobody leads"
    if reconnected:
        store.scheduling.invalidate_caches()

    changes = (await store.scheduling.snapshot("default")).changes
    assert changes is not None
    assert changes.number == 2
    assert [item.session_id for item in changes.changed] == [
        place.session_id for place in made.places
    ]


async def test_change_without_notification_is_found_by_comparison(
    store: Store, clock: StoreClock
) -> None:
    await add(store, "one")
    await add(store, "two")
    await add(store, "pauses")
    assert len(await seen(store)) == 3
    await store.database.fetch("UPDATE sessions SET status = 'CANCELLED' WHERE name = 'one'")
    await store.database.fetch("UPDATE sessions SET retries = 5 WHERE name = 'two'")
    await store.database.fetch(
        "UPDATE sessions SET not_before = now() + interval '1 h' WHERE name = 'pauses'"
    )
    assert await names(store) == {"one", "two", "pauses"}, "not compared yet"
    clock.advance(pending_cache.REREAD_S)
    assert await names(store) == {"two"}
    assert await seen(store) == await read_all(store)
    await store.database.fetch("UPDATE sessions SET not_before = now() WHERE name = 'pauses'")
    clock.advance(pending_cache.REREAD_S)
    assert await names(store) == {"two", "pauses"}, "its time has come"


async def test_changed_dependency_is_found_by_comparison(store: Store, clock: StoreClock) -> None:
    await add(store, "first")
    await add(store, "after", depends_on=[{"session": "first", "on": "any"}])
    assert {p.dependencies for p in (await seen(store)).values()} == {"met", "unmet"}
    await store.database.fetch(
        "UPDATE sessions SET status = 'TERMINATED' WHERE name = 'first'"
    )  # without a notification
    clock.advance(pending_cache.REREAD_S)
    assert [p.dependencies for p in (await seen(store)).values()] == ["met"]


async def test_session_that_waits_for_another_is_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of pipeline steps may wait for one running step."""
    monkeypatch.setattr(pending_cache, "REREAD_S", 0.0)
    await add(store, "first")
    await add(store, "after", depends_on=[{"session": "first", "on": "any"}])
    assert len(await seen(store)) == 2

    for _ in range(2):
        changes = (await store.scheduling.snapshot("default")).changes
        assert changes is not None
        assert changes.changed == ()


class Away(Database):
    """The same database, which is unavailable while ``away`` is set."""

    away = False

    def dedicated_connection(self, *, durable: bool = True) -> DedicatedConnection:
        return _Connection(self, super().dedicated_connection(durable=durable))


class _Connection(DedicatedConnection):
    def __init__(self, database: Away, connection: DedicatedConnection) -> None:
        self._database = database
        self._inner = connection

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        if self._database.away:
            raise StoreUnavailable
        return await self._inner.fetch(sql, *args)


async def test_failed_read_is_repeated_later(
    store: Store, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_cache, "REREAD_S", 3600.0)
    database = Away(migrated_database)
    async with database:
        asked = pending_cache.PendingCache(database, StoreClock(), store.unreadable, store.notifier)
        assert (await asked.of("default"))[0] == ()
        await add(store, "one")
        database.away = True
        with pytest.raises(StoreUnavailable):
            await asked.of("default")

        database.away = False
        assert len((await asked.of("default"))[0]) == 1
        asked.invalidate(None)
        database.away = True
        with pytest.raises(StoreUnavailable):
            await asked.of("default")

        await store.database.fetch("UPDATE sessions SET retries = 5")  # without a notification
        database.away = False
        assert [p.retries for p in (await asked.of("default"))[0]] == [5]


async def test_unused_cache_does_not_accumulate_ids(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager that does not lead is also notified, and must not accumulate ids without bound."""
    monkeypatch.setattr(pending_cache, "REREAD_S", 3600.0)
    monkeypatch.setattr(pending_cache, "MAX_STALE", 5)
    clock = StoreClock()
    cache = pending_cache.PendingCache(store.database, clock, store.unreadable, store.notifier)
    await add(store, "before")
    assert cache.stale_count == 0
    assert len((await cache.of("default"))[0]) == 1
    for n in range(20):
        await add(store, f"s{n}")
        assert cache.stale_count <= 5

    assert len((await cache.of("default"))[0]) == 21


async def test_every_session_gets_a_hold_within_several_passes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold_writer, "MAX_HOLDS_PER_PASS", 4)
    await asyncio.gather(*(add(store, f"s{n}") for n in range(10)))
    snapshot = await store.scheduling.snapshot("default")
    holds = plan(snapshot, Policy()).holds
    await store.scheduling.record_holds(snapshot, holds)
    told = [4]
    for _ in range(3):
        # A planner that keeps its earlier results does not report them again.
        snapshot = await store.scheduling.snapshot("default")
        await store.scheduling.record_holds(snapshot, [])
        views = (await store.sessions.page(SYSTEM, statuses=frozenset({Status.PENDING}))).items
        told.append(sum(view.hold is not None for view in views))

    assert told == [4, 8, 10, 10]
