"""A leader's writes: only under its term, and only from its own observations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.model.errors import Conflict
from moorage.common.model.ids import SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import AgentStatus, ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.silence import Mark
from moorage.manager.loops import AgentMonitor, Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.scheduling import Policy, plan
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, RUNNING, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()

ALIVE = AgentStatus.ALIVE
SUSPECT = AgentStatus.SUSPECT
LOST = AgentStatus.LOST


async def running(store: Store, agent: FakeAgent, name: str, **more: object) -> SessionId:
    base: dict[str, object] = {"command": ["x"], "resources": {"cpu": 1}, "name": name}
    made = await store.sessions.create(Scope.system("t"), SessionSpec.model_validate(base | more))
    await schedule(store)
    agent.see(made.kernels[0].id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    return SessionId(made.id)


async def mark(store: Store, term: int) -> int:
    (contact,) = await store.agents.contacts(0.0)
    marks = [Mark(contact.agent_id, contact.last_seen, SUSPECT)]
    return len(await store.agents.mark_silent(marks, term))


async def preempt(store: Store, term: int) -> int:
    victim = Victim(await store.sessions.find(SYSTEM, "s"), SessionId("other"), "requeue", 0)
    return await SessionTerminator(store, LOST_GRACE_S).preempt([victim], term)


async def stop(store: Store, term: int) -> int:
    terminator = SessionTerminator(store, LOST_GRACE_S)
    view = await terminator.stop(
        Scope.system("replicas"), "s", reason=Reason.SCALED_DOWN, term=term
    )
    return view.status is Status.TERMINATING


async def create(store: Store, term: int) -> int:
    spec = EndpointSpec.model_validate({"name": "e", "command": ["x"], "probe": {"path": "/"}})
    try:
        await store.sessions.create(Scope.system("replicas"), spec.session("e-1"), term=term)
    except Conflict:
        return 0
    return 1


async def hold(store: Store, term: int) -> int:
    await store.sessions.create(
        Scope.system("t"), SessionSpec(command=["x"], resources={"cpu": 99}, name="big")
    )
    snapshot = await store.scheduling.snapshot("default")
    holds = plan(snapshot, Policy()).holds
    await store.scheduling.record_holds(snapshot, holds, term=term)
    return (await store.sessions.get(SYSTEM, "big")).hold is not None


async def hold_losses(store: Store, term: int) -> int:
    return len(await store.agents.hold_losses(["default"], term))


async def move_deadlines(store: Store, term: int) -> int:
    return await store.deadlines.move(3600, term=term, clock_jumps=0)


async def place(store: Store, term: int) -> int:
    await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"], name="small"))
    return await store.scheduling.place(
        plan(await store.scheduling.snapshot("default"), Policy()).places, term
    )


async def expire(store: Store, term: int) -> int:
    await store.database.fetch("UPDATE kernels SET lease_s = 30")
    await store.database.fetch("UPDATE agents SET status = 'SUSPECT', lease_runtimes = '{process}'")
    silent = await store.kernel_leases.on_silent_agents()
    assert len(silent) == 1
    return await store.kernel_leases.expire(silent, term)


WRITES = [mark, preempt, stop, create, hold, hold_losses, move_deadlines, place, expire]
# Writes that another leader would repeat or make differently.
LOCKING = [mark, preempt, stop, create, place, expire]


@pytest.mark.parametrize("write", WRITES)
async def test_former_leader_writes_nothing(
    store: Store, write: Callable[[Store, int], Awaitable[int]]
) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await running(store, agent, "s")
    term = await store.leases.acquire("test", 60) or 0
    await store.database.fetch("UPDATE leases SET expires_at = now()")
    assert await store.leases.acquire("other", 60) == term + 1
    assert not await write(store, term)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.RUNNING
    if write not in (hold, place):
        assert await write(store, term + 1)


@pytest.mark.parametrize("write", WRITES)
async def test_leader_whose_lease_is_over_writes_nothing(
    store: Store, write: Callable[[Store, int], Awaitable[int]]
) -> None:
    """No other manager leads yet, but one may start at any moment, from the state that it reads
    now."""
    agent = FakeAgent(store)
    await agent.report()
    await running(store, agent, "s")
    term = await store.leases.acquire("test", 60) or 0
    await store.database.fetch("UPDATE leases SET expires_at = now()")
    assert not await write(store, term)
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.RUNNING


@pytest.mark.parametrize("write", LOCKING)
async def test_leader_that_is_replaced_meanwhile_writes_nothing(
    store: Store, migrated_database: str, write: Callable[[Store, int], Awaitable[int]]
) -> None:
    """Another manager becomes leader while the statement runs."""
    agent = FakeAgent(store)
    await agent.report()
    await running(store, agent, "s")
    term = await store.leases.acquire("test", 60) or 0
    other = await asyncpg.connect(migrated_database)
    async with other.transaction():
        await other.execute("SELECT set_config('moorage.schema', '9', true)")
        assert (
            await other.execute("UPDATE leases SET holder = 'other', term = term + 1") == "UPDATE 1"
        )
        writing = asyncio.ensure_future(write(store, term))
        await until_it_waits(other, writing)

    assert not await writing
    await other.close()
    assert (await store.sessions.get(SYSTEM, "s")).status is Status.RUNNING


async def until_it_waits(connection: Any, writing: asyncio.Future[int]) -> None:
    """Return once the write waits for a lock, or has finished without waiting."""
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(30):
        while not writing.done() and not await connection.fetch(waits):
            await asyncio.sleep(0.01)


async def test_deadlines_move_once_for_each_jump(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    await running(store, agent, "s", timeout_s=60)
    await store.agents.cordon(agent.name, actor="t", drain=True, stop_after_s=60)

    async def deadlines() -> tuple[datetime, datetime]:
        session = await store.sessions.get(SYSTEM, "s")
        node = await store.agents.get(agent.name)
        assert session.deadline_at is not None
        assert node.stop_at is not None
        return session.deadline_at, node.stop_at

    before = await deadlines()
    term = await store.leases.acquire("test", 60) or 0
    _, corrected = await store.deadlines.now()
    for moved in (True, False):
        assert await store.deadlines.move(3600, term=term, clock_jumps=corrected) is moved
        assert [
            (b - a).total_seconds() for a, b in zip(before, await deadlines(), strict=True)
        ] == [3600] * 2

    assert (await store.deadlines.now())[1] == corrected + 1


async def test_alive_agent_is_never_lost_at_once(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    with pytest.raises(asyncpg.CheckViolationError, match="node-1 is ALIVE"):
        await store.database.fetch("UPDATE agents SET status = 'LOST'")

    term = await store.leases.acquire("test", 60) or 0
    (contact,) = await store.agents.contacts(0.0)
    assert (
        await store.agents.mark_silent([Mark(contact.agent_id, contact.last_seen, LOST)], term)
        == []
    )
    assert (await store.agents.get(agent.name)).status is ALIVE


class Monitored:
    """A leader's monitor with its own monotonic clock. The database's clock is the real one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock()
        self.leader = Leader(store, StoreClock())
        self.monitor = AgentMonitor(
            store, self.leader, ManagerMetrics(), self.clock, suspect_after_s=40, lost_grace_s=120
        )

    async def look(self, seconds: float) -> dict[str, AgentStatus]:
        await self.leader.run_once()
        for _ in range(int(seconds / 5)):
            self.clock.advance(5)
            await self.monitor.run_once()
        return {view.id: view.status for view in (await self.store.agents.page()).items}


async def test_lost_needs_the_database_clock_too(store: Store) -> None:
    """A runaway monotonic clock makes an agent SUSPECT, which costs nothing."""
    agent = FakeAgent(store)
    monitored = Monitored(store)
    await agent.report()
    assert await monitored.look(600) == {"node-1": ALIVE}, (
        "the database has heard from it a moment ago"
    )
    await store.database.fetch("UPDATE agents SET last_seen = now() - interval '20 seconds'")
    assert await monitored.look(600) == {"node-1": SUSPECT}
    await store.database.fetch("UPDATE agents SET last_seen = now() - interval '1 hour'")
    assert await monitored.look(100) == {"node-1": SUSPECT}, (
        "looked at for less than the grace period"
    )
    assert await monitored.look(30) == {"node-1": LOST}


async def test_agents_of_a_group_are_held_together(store: Store) -> None:
    agents = [FakeAgent(store, f"n{n}") for n in range(3)]
    monitored = Monitored(store)
    for agent in agents:
        await agent.report()

    await store.database.fetch("UPDATE agents SET last_seen = now() - interval '20 seconds'")
    await monitored.look(60)
    await store.database.fetch("UPDATE agents SET last_seen = now() - interval '1 hour'")
    assert set((await monitored.look(300)).values()) == {SUSPECT}
    assert all(view.loss_held_since for view in (await store.agents.page()).items)
    for agent in agents[1:]:
        await agent.report()

    assert await monitored.look(10) == {"n0": LOST, "n1": ALIVE, "n2": ALIVE}
    assert not any(view.loss_held_since for view in (await store.agents.page()).items)
