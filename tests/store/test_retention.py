"""Retention: expired rows are deleted batch by batch until none is left, however many there are."""

from __future__ import annotations

from datetime import timedelta

import pytest

from moorage.common.model.paging import Paging
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.keys import IdempotencyKey
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import GarbageCollector, Leader
from moorage.manager.loops import garbage_collector as gc
from moorage.manager.loops.garbage_collector import Retention
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.platform import retention
from tests.clocks import StoreClock

from .conftest import FakeAgent, schedule, stop

DAY_S = 86_400.0


async def add(store: Store, name: str, key: str | None = None) -> str:
    spec = SessionSpec.model_validate({"command": ["x"], "resources": {"cpu": 1}, "name": name})
    if key is None:
        return (await store.sessions.create(Scope.system("t"), spec)).id
    view, _ = await store.sessions.create_once(
        Scope.system("t"), spec, idempotency_key=IdempotencyKey("s", key)
    )
    return view.id


async def ended(store: Store, count: int, ago: timedelta) -> None:
    for number in range(count):
        await add(store, f"s{number}")
        await stop(store, f"s{number}", actor="t")
    await store.database.fetch(
        "UPDATE sessions SET created_at = created_at - $1::interval, "
        "status_since = status_since - $1::interval",
        ago,
    )


async def test_the_audit_log_is_kept_for_its_time(
    store: Store, clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    for number in range(12):
        entry = await store.audit.begin(
            Scope.system("t"),
            from_address="",
            request_id="",
            action="put_group",
            resource="groups",
            name=f"g{number}",
            before=None,
        )
        age = timedelta(days=401 if number < 10 else 399)
        await store.database.fetch(
            "UPDATE audit_log SET at = at - $2::interval WHERE id = $1", entry, age
        )

    async with Leader(store, clock) as leader:
        collector = GarbageCollector(store, leader, ManagerMetrics(), clock)
        clock.advance(gc.STEADY_S)
        await leader.run_once()
        await collector.run_once()

    kept = await store.database.fetch("SELECT name FROM audit_log ORDER BY id")
    assert [row["name"] for row in kept] == ["g10", "g11"]


async def left(store: Store) -> int:
    return len((await store.sessions.page(Scope.system(), Paging(1000))).items)


async def test_sessions_are_deleted_in_batches_by_their_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 4)
    await ended(store, 10, timedelta(days=3))
    await store.database.fetch("UPDATE sessions SET status_since = now() WHERE name = 's0'")
    assert [await store.retention.delete_sessions(4 * DAY_S) for _ in range(1)] == [0]
    assert [await store.retention.delete_sessions(2 * DAY_S) for _ in range(4)] == [4, 4, 1, 0]
    assert await left(store) == 1, "it was created long ago, and ended just now"


async def test_garbage_collector_deletes_until_nothing_is_left(
    store: Store, clock: StoreClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are deleted in one iteration if there is time, otherwise in the following ones, and not
    before the clock has been steady."""
    monkeypatch.setattr(retention, "BATCH", 2)
    await ended(store, 9, timedelta(days=3))
    await add(store, "kept", key="old")
    await store.database.fetch("UPDATE idempotency_keys SET created_at = now() - interval '2 days'")

    async with Leader(store, clock) as leader:
        collector = GarbageCollector(
            store, leader, ManagerMetrics(), clock, kept=Retention(sessions_s=2 * DAY_S)
        )
        clock.advance(gc.DELETE_EVERY_S)
        await leader.run_once()
        await collector.run_once()
        assert await left(store) == 10
        clock.advance(gc.STEADY_S)
        await leader.run_once()
        monkeypatch.setattr(gc, "DELETE_FOR_S", 0.0)
        await collector.run_once()
        assert await left(store) == 8, "one batch"
        monkeypatch.setattr(gc, "DELETE_FOR_S", 60.0)
        await collector.run_once()
        assert await left(store) == 1
        assert await store.database.fetch("SELECT FROM idempotency_keys") == []


async def test_forgotten_agent_is_deleted_with_its_last_session(store: Store) -> None:
    agent = FakeAgent(store, "node-7")
    await agent.report()
    await FakeAgent(store, "node-8").report()
    await store.agents.cordon("node-8", actor="t")
    await add(store, "job")
    assert await schedule(store) == 1
    await store.database.fetch("UPDATE agents SET status = 'SUSPECT' WHERE id = 'node-7'")
    assert await store.retention.delete_agents() == 0
    await forget(store, "node-7")
    assert await store.retention.delete_agents() == 0, "its kernel is kept as long as the session"
    await store.database.fetch("DELETE FROM sessions")
    assert await store.retention.delete_agents() == 1
    assert [row["id"] for row in await store.database.fetch("SELECT id FROM agents")] == ["node-8"]
    await agent.report()  # it returns after all, as a new one
    assert (await store.agents.get("node-7")).kernels == 0


async def forget(store: Store, agent_id: str) -> None:
    await store.agents.forget(agent_id, actor="t", destroyed=True)
