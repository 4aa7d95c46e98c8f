"""A database whose clock is set forward: no deadline passes too early."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest_asyncio

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import DrainController, Leader, SessionController
from moorage.manager.store import Store, migrate
from tests.clocks import StoreClock

from .conftest import RUNNING, FakeAgent, open_store, reconcile_all, schedule

SYSTEM = Scope.system()

JUMP_S = 7200.0


@pytest_asyncio.fixture
async def store(empty_database: str) -> AsyncIterator[Store]:
    """Its ``now()`` is ahead of the real time by the amount in ``clock.ahead``."""
    connection = await asyncpg.connect(empty_database)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"""
        CREATE SCHEMA clock;
        CREATE TABLE clock.ahead AS SELECT 0::float8 AS seconds;
        CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE
            AS $$ SELECT pg_catalog.now() + make_interval(secs => (SELECT seconds FROM clock.ahead)) $$;
        ALTER DATABASE {name} SET search_path = clock, public, pg_catalog;
    """)
    await connection.close()
    await migrate(empty_database)
    async with open_store(empty_database) as made:
        yield made


async def test_no_deadline_passes_with_a_jump(store: Store) -> None:
    agent = FakeAgent(store)
    clock = StoreClock()
    await agent.report()
    spec = SessionSpec(name="s", command=["x"], resources={"cpu": 1}, timeout_s=3600)
    waiting = SessionSpec(
        name="waiting", command=["x"], resources={"cpu": 99}, pending_timeout_s=3600
    )
    made = await store.sessions.create(Scope.system("t"), spec)
    await store.sessions.create(Scope.system("t"), waiting)
    await schedule(store)
    agent.see(made.kernels[0].id, ObservedState.RUNNING, **RUNNING)
    await agent.report()
    await reconcile_all(store)
    await store.agents.cordon(agent.name, actor="t", drain=True, stop_after_s=3600)
    await store.database.fetch("DELETE FROM leases")
    leader = Leader(store, clock)
    loops = SessionController(store, leader, clock, 120), DrainController(store, leader, clock, 120)

    async def run() -> None:
        await leader.run_once()
        for loop in loops:
            await loop.run_once()
        views = [await store.sessions.get(SYSTEM, name) for name in ("s", "waiting")]
        assert [view.status for view in views] == [Status.RUNNING, Status.PENDING]

    await leader.run_once()
    await leader.deadlines.run_once()
    await run()
    before = (await store.sessions.get(SYSTEM, "s")).deadline_at
    await store.database.fetch("UPDATE clock.ahead SET seconds = $1", JUMP_S)
    await run()  # the jump has not been corrected yet
    await leader.deadlines.run_once()
    await run()
    after = (await store.sessions.get(SYSTEM, "s")).deadline_at
    node = await store.agents.get(agent.name)
    assert before is not None
    assert after is not None
    assert node.stop_at is not None
    assert JUMP_S <= (after - before).total_seconds() < JUMP_S + 60
    assert node.stop_at > after
