"""A database that was restored to an older state: numbering continues above the numbers that peers
have seen, and kernels unknown to the backup are found before anything is placed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store import Store
from moorage.manager.store.platform.restored import prepare_restored
from moorage.manager.store.scheduling import pending_cache
from tests.clocks import StoreClock

from .conftest import RUNNING, FakeAgent, open_store, reconcile_all, schedule

SYSTEM = Scope.system()

UNKNOWN = KernelId("01234567-89ab-7cde-8f01-23456789abcd")
ITS_SESSION = SessionId("fedcba98-7654-7321-8fed-cba987654321")


async def add(store: Store, name: str, **more: object) -> str:
    spec = SessionSpec.model_validate(
        {"name": name, "command": ["x"], "resources": {"cpu": 1}} | more
    )
    return (await store.sessions.create(Scope.system("t"), spec)).id


async def restore(store: Store) -> None:
    """Act as if this state came from a backup."""
    await prepare_restored(store.database.dsn)


async def test_generations_continue_above_what_was_seen(store: Store) -> None:
    first = await store.orders.next_generation()
    store.orders.note_generation(first + 1_000_000)
    raised = await store.orders.next_generation()
    assert raised > first + 1_000_000
    store.orders.note_generation(5)
    assert await store.orders.next_generation() == raised + 1, "a smaller number changes nothing"


async def test_generations_never_repeat_while_they_are_raised(store: Store) -> None:
    async with open_store(store.database.dsn) as other:
        base = await store.orders.next_generation()

        async def draw(one: Store, n: int) -> int:
            if n % 3 == 0:
                one.orders.note_generation(base + (n % 7) * 40 + n)
            return await one.orders.next_generation()

        drawn = await asyncio.gather(*(draw(one, n) for n in range(300) for one in (store, other)))

    assert len(set(drawn)) == len(drawn)


async def test_restored_numbers_are_above_all_that_were_drawn(store: Store) -> None:
    for manager in ("first", "second", "third"):
        term = await store.leases.acquire(manager, 60)
        await store.database.fetch("UPDATE leases SET expires_at = now()")

    seen = await store.orders.next_generation()
    await store.database.fetch("SELECT setval('generations', 1)")
    await store.database.fetch("UPDATE leases SET term = 1")
    await restore(store)
    assert await store.orders.next_generation() > seen
    assert term is not None
    later = await store.leases.acquire("after", 60)
    assert later is not None
    assert later > term


async def test_agent_gets_no_work_before_its_first_report_after_a_restore(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    await restore(store)
    view = await store.agents.get("node-1")
    assert (view.status, view.ready) == ("ALIVE", False)
    await add(store, "new")
    assert await schedule(store) == 0
    agent.reconnect(store)
    await agent.report()
    assert (await store.agents.get("node-1")).ready
    assert await schedule(store) == 1


async def test_restored_session_waits_until_every_agent_has_reported(
    store: Store, clock: StoreClock
) -> None:
    first = FakeAgent(store, stream=1)
    second = FakeAgent(store, "node-2", stream=1)
    await first.report()
    await second.report()
    old = await add(store, "old")
    await restore(store)
    await add(store, "new")
    first.reconnect(store)
    await first.report()
    await schedule(store)
    statuses = {v.name: v.status for v in (await store.sessions.page(SYSTEM)).items}
    assert statuses == {"old": Status.PENDING, "new": Status.SCHEDULED}
    second.reconnect(store)
    second.seen[UNKNOWN] = replace(_running(UNKNOWN), session_id=SessionId(old))
    await second.report()
    await schedule(store)
    assert (await store.sessions.get(SYSTEM, old)).status is Status.PENDING, "it runs on node-2"
    second.seen.clear()
    await second.report()
    clock.advance(pending_cache.REREAD_S)
    assert await schedule(store) == 1
    assert (await store.sessions.get(SYSTEM, old)).status is Status.SCHEDULED


@pytest.mark.parametrize("keep", [True, False])
async def test_unknown_kernels_are_listed_and_block_their_agent(
    store: Store, migrated_database: str, keep: bool
) -> None:
    async with open_store(migrated_database, keep_unknown_kernels=keep) as restarted:
        agent = FakeAgent(restarted, stream=1)
        agent.seen[UNKNOWN] = _running(UNKNOWN)
        await agent.report()
        view = await restarted.agents.get("node-1")
        assert [(k.kernel_id, k.session_id) for k in view.unknown_kernels] == [
            (UNKNOWN, ITS_SESSION)
        ]
        assert not view.ready
        [drift] = await restarted.integrity.check()
        assert (drift.check, drift.subject) == ("unknown", UNKNOWN)
        ordered = [k.kernel_id for k in await restarted.orders.of(view.id)]  # type: ignore[arg-type]
        assert ordered == ([UNKNOWN] if keep else [])
        await add(restarted, "new")
        assert await schedule(restarted) == 0
        agent.seen[UNKNOWN] = replace(_running(UNKNOWN), state=ObservedState.EXITED)
        await agent.report()
        assert (await restarted.agents.get("node-1")).ready
        assert await restarted.orders.of(view.id) == ()  # type: ignore[arg-type]
        assert await schedule(restarted) == 1


async def test_kernel_that_the_backup_knows_is_adopted(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    session = await add(store, "job")
    await schedule(store)
    kernel = (await store.sessions.get(SYSTEM, session)).kernels[-1]
    agent.see(kernel.id, ObservedState.RUNNING, **RUNNING)
    await restore(store)
    agent.reconnect(store)
    await agent.report()
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, session)).status is Status.RUNNING
    assert (await store.agents.get("node-1")).ready


async def test_kernel_that_was_pending_in_the_backup_is_not_started_twice(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await agent.report()
    session = await add(store, "job")
    before = (await store.sessions.get(SYSTEM, session)).kernels[-1].id
    await restore(store)
    assert (await store.sessions.get(SYSTEM, session)).kernels[-1].id != before
    agent.reconnect(store)
    agent.seen[KernelId(before)] = replace(
        _running(KernelId(before)), session_id=SessionId(session)
    )
    await agent.report()
    assert await schedule(store) == 0
    assert [k.kernel_id for k in (await store.agents.get("node-1")).unknown_kernels] == [before]


async def test_agent_that_refuses_orders_gets_no_work(store: Store) -> None:
    agent = FakeAgent(store, stream=1)
    await store.reports.apply(replace(AgentUpdate.of(agent.full_report()), refuses_orders=True))
    await add(store, "job")
    assert (await store.agents.get("node-1")).refuses_orders
    assert await schedule(store) == 0
    await agent.report()
    assert await schedule(store) == 1


def _running(kernel_id: KernelId) -> Observation:
    return Observation(
        kernel_id, ITS_SESSION, state=ObservedState.RUNNING, host="127.0.0.1", port=21000
    )
