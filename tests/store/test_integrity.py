"""Integrity checks: each finds its violation, and repair corrects everything that is repairable."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import asyncpg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from moorage.common.aio.clock import ManualClock
from moorage.common.model.status import ObservedState
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import GarbageCollector, Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.platform.integrity import CHECKS, KERNEL_STATUSES

from .conftest import RUNNING, FakeAgent, mark_silent, reconcile_all, schedule, stop
from .test_session_lifecycle import spec, started, used


async def corrupt(store: Store, *statements: str) -> None:
    connection = await asyncpg.connect(store.database.dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def create_sessions_in_every_status(store: Store) -> None:
    """Pending, running, stopping and ended sessions, without drift."""
    agent = FakeAgent(store, gpus=4)
    for name in ("ended", "runs", "stopping"):
        kernel = await started(store, agent, name=name, timeout_s=3600)
        if name == "ended":
            agent.see(kernel, ObservedState.EXITED, exit_code=0)
            await agent.report()
            await reconcile_all(store)

    await stop(store, "stopping", actor="test")
    await store.sessions.create(
        Scope.system("test"), spec("waits", pending_timeout_s=3600, resources={"cpu": 99})
    )
    await store.sessions.create(Scope.system("test"), spec("cancelled"))
    await stop(store, "cancelled", actor="test")


RUNNING_ONES = "kernel_id IN (SELECT id FROM kernels WHERE status = 'RUNNING')"
ENDED_ONES = "kernel_id IN (SELECT id FROM kernels WHERE status = 'TERMINATED')"
LONG_AGO = "now() - interval '1 hour'"
RECOUNT = (
    "UPDATE agent_slots c SET used = (SELECT coalesce(sum(amount), 0) FROM allocations a "
    "WHERE released_at IS NULL AND (a.agent_id, a.slot, a.device_id) = (c.agent_id, c.slot, c.device_id))"
)
# The violations: for each, the check that must detect it, and how to cause it.
BREAKS: dict[str, tuple[str, ...]] = {
    "a counter": ("counters", "UPDATE agent_slots SET used = used + 1 WHERE slot = 'cpu'"),
    "a slot over its capacity": (
        "devices", "UPDATE agent_slots SET capacity = 999 WHERE slot = 'cuda.device'",
    ),
    "a live kernel that holds nothing": (
        "devices", f"UPDATE allocations SET released_at = now() WHERE {RUNNING_ONES}", RECOUNT,
    ),
    "a gap": ("history", "DELETE FROM session_history WHERE revision = 2"),
    "no history": ("history", "DELETE FROM session_history"),
    "a step that is not in the table": (
        "history", "UPDATE session_history SET event = 'placed' WHERE event = 'stop'",
    ),
    "a status without history": (
        "history", "UPDATE sessions SET status = 'ERROR' WHERE status = 'CANCELLED'",
    ),
    "a revision without history": ("history", "UPDATE sessions SET revision = 9 WHERE status = 'RUNNING'"),
    "stopping without a deadline": (
        "stuck", "UPDATE sessions SET deadline_at = NULL WHERE status = 'TERMINATING'",
    ),
    "running without its timeout": (
        "stuck", "UPDATE sessions SET deadline_at = NULL WHERE status = 'RUNNING'",
    ),
    "waiting without its timeout": (
        "stuck", "UPDATE sessions SET deadline_at = NULL WHERE status = 'PENDING'",
    ),
    "a deadline that nobody looked at": (
        "stuck", f"UPDATE sessions SET deadline_at = {LONG_AGO} WHERE status = 'RUNNING'",
    ),
    "no kernel": ("stuck", "DELETE FROM kernels WHERE status = 'PENDING'"),
    "a session that does not follow its kernel": (
        "stuck", f"UPDATE kernels SET status = 'ERROR', status_since = {LONG_AGO} WHERE status = 'RUNNING'",
    ),
    "a kernel that outlives its session": (
        "orphans", "UPDATE kernels SET status = 'RUNNING' WHERE status = 'TERMINATED'",
    ),
    "what an ended kernel still holds": (
        "leaks",
        f"UPDATE allocations SET released_at = NULL WHERE {ENDED_ONES}",
        f"UPDATE kernels SET status_since = {LONG_AGO} WHERE status = 'TERMINATED'",
        RECOUNT,
    ),
    "a kernel that its session does not know of": (
        "kernels", "UPDATE kernels SET status = 'CREATING' WHERE status = 'RUNNING'",
    ),
    "a wanted kernel of an earlier attempt": (
        "kernels", "UPDATE kernels SET attempt = 0 WHERE status = 'RUNNING'",
    ),
    "a kernel without a row": (
        "unknown", """UPDATE agents SET unknown_kernels = '[{"kernel_id": "k", "session_id": "s"}]'""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BREAKS)
async def test_violation_is_found(store: Store, what: str) -> None:
    await create_sessions_in_every_status(store)
    assert await store.integrity.check() == []
    name, *statements = BREAKS[what]

    # A constraint refuses some of these; the check is for the case that the constraint has been
    # dropped.
    await corrupt(store, "ALTER TABLE agent_slots DROP CONSTRAINT used_within_capacity")
    await corrupt(store, "DROP INDEX allocations_whole_device", *statements)
    found = [drift for drift in await store.integrity.check() if drift.check == name]
    assert found, f"check {name} does not see {what}"
    assert all(drift.subject and drift.detail for drift in found)

    if next(check for check in CHECKS if check.name == name).repairable:
        assert all(
            drift.repaired for drift in await store.integrity.repair() if drift.check == name
        )
        assert await store.integrity.check() == []


def test_every_check_has_a_violation_here() -> None:
    assert {name for name, *_ in BREAKS.values()} == {check.name for check in CHECKS}
    assert len(KERNEL_STATUSES) == 10


async def test_fenced_allocation_is_no_drift_and_is_not_repaired(store: Store) -> None:
    agent = FakeAgent(store)
    await started(store, agent, type="interactive")
    await mark_silent(store)
    await reconcile_all(store)
    await corrupt(store, "UPDATE kernels SET status_since = now() - interval '1 hour'")
    # heard from, and it still shows the kernel
    await corrupt(store, "UPDATE agents SET status = 'ALIVE'")
    assert await store.integrity.repair() == []
    assert await used(store) == {"cpu": 1000, "cuda.device": 1000}


async def test_garbage_collector_repairs_and_counts_drift(store: Store) -> None:
    await create_sessions_in_every_status(store)
    before = await used(store)
    clock = ManualClock()
    metrics = ManagerMetrics()
    await corrupt(store, "DELETE FROM leases")  # the test's own transaction
    leader = Leader(store, clock)
    await leader.run_once()
    sweeper = GarbageCollector(store, leader, metrics, clock)
    await corrupt(store, "UPDATE agent_slots SET used = used + 1 WHERE slot = 'cpu'")
    await corrupt(store, "UPDATE sessions SET deadline_at = NULL WHERE status = 'TERMINATING'")
    clock.advance(61)
    await leader.run_once()
    await sweeper.run_once()
    assert await used(store) == before
    families = text_string_to_metric_families(metrics.render().decode())
    samples = {(s.name, s.labels.get("check")): s.value for f in families for s in f.samples}
    assert samples["moorage_drift_repaired_total", "counters"] == 1
    assert samples["moorage_drift", "stuck"] == 1
    assert ("moorage_drift", "counters") not in samples


async def run_check(dsn: str, home: Path, *words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moorage", "db", "check", "--home", str(home), *words,
        stdout=asyncio.subprocess.PIPE, env=os.environ | {"MOORAGE_MANAGER__DSN": dsn},
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_db_check_reports_and_repairs_drift(
    store: Store, migrated_database: str, home: Path
) -> None:
    await create_sessions_in_every_status(store)
    assert await run_check(migrated_database, home) == (0, "no drift: every check passes\n")
    await corrupt(store, "UPDATE agent_slots SET used = used + 1 WHERE slot = 'cpu'")
    code, out = await run_check(migrated_database, home, "-o", "json")
    assert code == 1
    assert [(d["check"], d["repaired"]) for d in json.loads(out)] == [("counters", False)]
    code, out = await run_check(migrated_database, home, "--repair")
    assert code == 0, "the drift is repaired"
    assert "node-1 cpu: used is 2001, but allocations add up to 2000" in out
    assert "1 found, 1 repaired" in out
    assert (await run_check(migrated_database, home))[0] == 0


async def test_check_during_placements_finds_no_drift(store: Store) -> None:
    """Every statement is consistent by itself, so a check never finds drift."""
    agent = FakeAgent(store, gpus=4)
    await agent.report()

    async def live() -> None:
        for n in range(10):
            await store.sessions.create(Scope.system("test"), spec(f"s{n}"))
            await schedule(store)
            view = await store.sessions.get(Scope.system(), f"s{n}")
            agent.see(view.kernels[0].id, ObservedState.RUNNING, **RUNNING)
            await agent.report()
            await reconcile_all(store)
            agent.see(view.kernels[0].id, ObservedState.EXITED, exit_code=0)
            await agent.report()
            await reconcile_all(store)

    task = asyncio.get_running_loop().create_task(live())
    looks = 0
    while not task.done():
        assert await store.integrity.check() == []
        looks += 1

    await task
    assert looks > 5
