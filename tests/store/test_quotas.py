"""Quotas: usage is counted from stored rows, and enforced by every pass and every request."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from moorage.common.model.errors import NotFound, QuotaExceeded
from moorage.common.model.group_options import GroupOptions, QuotaLimits, QuotaScope
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import Leader, Scheduler
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import Policy, plan
from moorage.manager.store import Store
from moorage.manager.store.database.connections import DedicatedConnection
from moorage.manager.store.database.queries import SQL
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, open_store, stop

pytestmark = pytest.mark.usefixtures("owners")

SYSTEM = Scope.system()

ANN = Owner("ann", "vision")
BOB = Owner("bob", "vision")


async def limit(store: Store, scope: QuotaScope, name: str, **limits: object) -> None:
    await store.quotas.put(Scope.system("t"), scope, name, QuotaLimits.model_validate(limits))


async def add(store: Store, name: str, owner: Owner = ANN, **more: object) -> None:
    base: dict[str, object] = {"command": ["x"], "resources": {"cuda.device": 1}}
    await store.sessions.create(
        Scope.system("t", owner), SessionSpec.model_validate(base | {"name": name} | more)
    )


async def tick(store: Store) -> None:
    clock = StoreClock()
    async with Leader(store, clock) as leader:
        await Scheduler(
            store, leader, SessionTerminator(store, LOST_GRACE_S), ManagerMetrics(), clock=clock
        ).run_once()


async def placed(store: Store) -> list[str]:
    page = await store.sessions.page(SYSTEM, statuses=frozenset({Status.SCHEDULED}))
    return sorted(view.name for view in page.items)


async def test_usage_is_counted_and_limited(store: Store) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await limit(store, "user", "ann", slots={"cuda.device": 2})
    for n in range(4):
        await add(store, f"s{n}")

    await add(store, "other", BOB)
    await tick(store)
    assert await placed(store) == ["other", "s0", "s1"]
    hold = (await store.sessions.get(SYSTEM, "s2")).hold
    assert hold is not None
    assert (hold.reason, hold.attempts) == (Reason.QUOTA, 0)
    assert hold.refusals == ["user ann: cuda.device: used 2 + requested 1 > limit 2 (over by 1)"]
    view = await store.quotas.get(SYSTEM, "user", "ann")
    assert (view.used, view.running, view.waiting) == ({"cuda.device": 2}, 2, 2)
    await tick(store)
    assert await placed(store) == ["other", "s0", "s1"]
    await limit(store, "user", "ann", slots={"cuda.device": 3})
    await tick(store)
    assert await placed(store) == ["other", "s0", "s1", "s2"]
    await store.quotas.delete(SYSTEM, "user", "ann")
    await tick(store)
    assert len(await placed(store)) == 5


@pytest.mark.parametrize(
    ("scope", "name", "limits", "line"),
    [
        (
            "project",
            "vision",
            {"slots": {"cuda.shares": 1.5}},
            "project vision: cuda.shares: used 1 + req",
        ),
        ("group", "default", {"sessions": 1}, "group default: 1 concurrent sessions of 1"),
        ("user", "ann", {"sessions": 0}, "user ann: 0 concurrent sessions of 0"),
        (
            "user",
            "ann",
            {"slots": {"cuda.device": 0}},
            "user ann: cuda.device: used 0 + requested 1",
        ),
    ],
)
async def test_each_scope_has_its_own_usage(
    store: Store, scope: QuotaScope, name: str, limits: dict[str, object], line: str
) -> None:
    await FakeAgent(store, "a", gpus=8).report()
    await limit(store, scope, name, **limits)
    await add(store, "first", BOB)
    await add(store, "second", ANN)
    await add(store, "small", ANN, resources={"cpu": 1})
    await tick(store)
    assert "first" in await placed(store)
    hold = (await store.sessions.get(SYSTEM, "second")).hold
    assert hold is not None
    assert any(refusal.startswith(line) for refusal in hold.refusals), hold.refusals
    assert ("small" in await placed(store)) == ("sessions" not in limits)


async def test_user_quota_applies_across_groups(store: Store) -> None:
    await store.groups.put("other", GroupOptions(), actor="t")
    await FakeAgent(store, "a", gpus=8).report()
    await FakeAgent(store, "b", gpus=8, group="other").report()
    await limit(store, "user", "ann", sessions=1)
    await limit(store, "group", "other", sessions=0)
    await add(store, "here")
    await add(store, "there", resource_group="other")
    await add(store, "bobs", BOB, resource_group="other")
    await tick(store)
    assert await placed(store) == ["here"]


async def test_pending_quota_rejects_further_sessions(store: Store) -> None:
    await limit(store, "user", "ann", pending=2)
    await add(store, "s1")
    await add(store, "s2")
    with pytest.raises(QuotaExceeded, match=r"user 'ann' may have 2 pending sessions") as caught:
        await add(store, "s3")

    assert "administrator" in str(caught.value)
    spec = SessionSpec(command=["x"])
    with pytest.raises(QuotaExceeded):
        await store.sessions.create_once(
            Scope.system("t", ANN), spec, idempotency_key=IdempotencyKey("k", "1")
        )

    await add(store, "s3", BOB)
    await stop(store, "s1", actor="t")
    await add(store, "s4")
    await limit(store, "group", "default", pending=0)
    with pytest.raises(QuotaExceeded, match="group 'default' may have 0"):
        await add(store, "s5", BOB)


async def test_concurrent_creates_respect_the_pending_quota(store: Store) -> None:
    await limit(store, "project", "vision", pending=25)
    asked = (add(store, f"s{n}", ANN if n % 2 else BOB) for n in range(60))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 35
    assert (await store.quotas.get(SYSTEM, "project", "vision")).waiting == 25


async def test_concurrent_creates_in_two_managers_respect_the_quota(
    store: Store, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(store, "user", "ann", pending=1)
    uncommitted: list[DedicatedConnection] = []
    fetch = DedicatedConnection.fetch

    async def fetch_without_commit(
        connection: DedicatedConnection, sql: str, *args: Any
    ) -> list[Any]:
        if sql == SQL["session_create_checked"] and not uncommitted:
            uncommitted.append(connection)
            await fetch(connection, "BEGIN")
        return await fetch(connection, sql, *args)

    monkeypatch.setattr(DedicatedConnection, "fetch", fetch_without_commit)
    async with open_store(migrated_database) as other:
        await add(other, "theirs")
        mine = asyncio.create_task(add(store, "mine"))
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        async with asyncio.timeout(10):
            while not (await store.database.fetch(blocked))[0]["count"]:
                assert not mine.done(), "it missed the uncommitted create and exceeds the quota"

        await fetch(uncommitted[0], "COMMIT")
        with pytest.raises(QuotaExceeded):
            await mine

    assert (await store.quotas.get(SYSTEM, "user", "ann")).waiting == 1


async def test_two_managers_respect_the_quotas_of_two_users(
    store: Store, migrated_database: str
) -> None:
    await limit(store, "user", "ann", pending=40)
    await limit(store, "user", "bob", pending=40)
    async with open_store(migrated_database) as other:
        asked = [
            add(manager, f"{who.user}-{where}-{n}", who)
            for where, manager, owners in (("a", store, (ANN, BOB)), ("b", other, (BOB, ANN)))
            for n in range(30)
            for who in owners
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 40
    for name in ("ann", "bob"):
        assert (await store.quotas.get(SYSTEM, "user", name)).waiting == 40


async def test_fair_shares_use_current_allocations(store: Store) -> None:
    await store.groups.put("default", GroupOptions(strategy="drf"), actor="t")
    agent = FakeAgent(store, "a", gpus=3)
    await agent.report()
    await add(store, "a1")
    await tick(store)
    for name in ("a2", "a3"):
        await add(store, name)

    await add(store, "b1", BOB)
    snapshot = await store.scheduling.snapshot("default", (await store.groups.with_pending())[0][1])
    assert snapshot.usage == {"ann": {"cuda.device": 1}}
    await tick(store)
    assert await placed(store) == ["a1", "a2", "b1"]


async def test_quotas_of_unknown_groups_and_invalid_values_are_rejected(store: Store) -> None:
    with pytest.raises(NotFound, match="no resource group 'nowhere'"):
        await limit(store, "group", "nowhere", sessions=1)
    with pytest.raises(NotFound, match="user 'ann' has no quota"):
        await store.quotas.delete(SYSTEM, "user", "ann")
    await limit(store, "user", "mate", sessions=1)
    assert [view.name for view in (await store.quotas.page(SYSTEM)).items] == ["mate"]
    for wrong in ("sessions = -1", "pending = -1", "slots = '[]'", "scope = 'team'", "name = ''"):
        with pytest.raises(asyncpg.CheckViolationError):
            await store.database.fetch(f"UPDATE quotas SET {wrong}")


async def test_leadership_does_not_change_during_a_placement(
    store: Store, migrated_database: str
) -> None:
    """This keeps quota counts complete: each of the previous leader's placements has been either
    committed or refused."""
    await FakeAgent(store, "a").report()
    await add(store, "s1", resources={"cpu": 1})
    term = await store.leases.acquire("old", 60)
    (place,) = plan(await store.scheduling.snapshot("default"), Policy()).places
    one = [[place.session_id], [place.revision], [place.kernel_id], [place.agent_id], [60.0]]
    takes = [[place.kernel_id], ["cpu"], [""], [1000]]
    old = await asyncpg.connect(migrated_database)
    try:
        async with old.transaction():
            assert await old.fetch(SQL["session_place"], term, *one, *takes, [], [], [], ["a"])
            taking = asyncio.create_task(store.leases.acquire("new", 60))
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            async with asyncio.timeout(10):
                while not (await store.database.fetch(blocked))[0]["count"]:
                    assert not taking.done()

        assert await taking is None, "it leads still"
        await store.database.fetch("UPDATE leases SET expires_at = now()")
        assert await store.leases.acquire("new", 60) == (term or 0) + 1
        store.notifier.notify_pending([place.session_id])  # as the manager that placed it does
        await add(store, "s2", resources={"cpu": 1})
        (place,) = plan(await store.scheduling.snapshot("default"), Policy()).places
        assert await store.scheduling.place([place], term or 0) == 0, "it leads no more"
    finally:
        await old.close()


async def test_both_create_statements_write_the_same_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer statement is used only while there are quotas on pending sessions."""
    statements: list[str] = []
    fetch = DedicatedConnection.fetch

    async def recording_fetch(connection: DedicatedConnection, sql: str, *args: Any) -> list[Any]:
        statements.append(sql)
        return await fetch(connection, sql, *args)

    monkeypatch.setattr(DedicatedConnection, "fetch", recording_fetch)
    spec = SessionSpec(command=["x"], type="interactive", pending_timeout_s=60, priority=20)
    found: list[dict[str, Any]] = []
    for name, limited in (("short", False), ("checked", True), ("short-again", False)):
        if limited:
            await limit(store, "user", "mate", pending=1)
        elif found:
            await store.quotas.delete(SYSTEM, "user", "mate")
            # by the longer statement, which finds that it is no longer needed
            await add(store, "between")

        statements.clear()
        view = await store.sessions.create(
            Scope.system("t", ANN), spec.model_copy(update={"name": name})
        )
        created_by = [
            sql
            for sql in statements
            if sql in (SQL["session_create"], SQL["session_create_checked"])
        ]
        assert created_by[-1] == SQL["session_create_checked" if limited else "session_create"]
        assert view == (await store.sessions.get(SYSTEM, name)).model_copy(
            update={"spec": view.spec}
        )
        (row,) = await store.database.fetch("SELECT * FROM sessions WHERE name = $1", name)
        (kernel,) = await store.database.fetch(
            "SELECT * FROM kernels WHERE session_id = $1", row["id"]
        )
        same = dict(row) | {
            "spec": row["spec"] | {"name": ""},
            "waits": row["deadline_at"] - row["created_at"],
        }
        own = {"id", "name", "created_at", "status_since", "deadline_at", "secret", "session_id"}
        both = {**{f"kernel.{k}": v for k, v in dict(kernel).items() if k not in own}, **same}
        found.append({k: v for k, v in both.items() if k not in own})
        assert [entry.event for entry in (await store.sessions.history(SYSTEM, name)).items] == [
            "created"
        ]

    assert found[0] == found[1] == found[2]
