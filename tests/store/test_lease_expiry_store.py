"""Kernel leases in the store: which kernels get one, and when the program runs again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.walltimes import GRACE_S, outlived
from moorage.manager.store import Store

from .conftest import FakeAgent, mark_silent, reconcile_all, schedule, stop

SYSTEM = Scope.system()

NODE = AgentId("node-1")


async def running(store: Store, **more: object) -> FakeAgent:
    agent = FakeAgent(store, lease_runtimes=("process",))
    await agent.report()
    base: dict[str, object] = {"name": "job", "command": ["x"], "resources": {"cpu": 1}}
    await store.sessions.create(Scope.system("t"), SessionSpec.model_validate(base | more))
    assert await schedule(store) == 1
    agent.see((await store.sessions.get(SYSTEM, "job")).kernels[0].id, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)
    return agent


async def leases_in_orders(store: Store) -> list[float]:
    rows = await store.database.fetch("SELECT coalesce(lease_s, 0) AS lease_s FROM kernels")
    return [row["lease_s"] for row in rows]


async def expire(store: Store) -> int:
    """End every lease on a silent agent, whatever its age."""
    term = await store.leases.acquire("test", 60)
    assert term is not None
    return await store.kernel_leases.expire(await store.kernel_leases.on_silent_agents(), term)


async def test_only_programs_that_run_again_have_a_lease(store: Store) -> None:
    await running(store, retries=1, lease_s=30)
    assert await leases_in_orders(store) == [30]


async def test_program_without_retries_has_no_lease(store: Store) -> None:
    await running(store)
    assert await leases_in_orders(store) == [0]


async def test_expired_lease_requeues_the_session(store: Store) -> None:
    await running(store, retries=1)
    await mark_silent(store)
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.RUNNING
    assert await expire(store) == 1
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.reason, view.requeues) == (Status.PENDING, Reason.LEASE_EXPIRED, 1)
    assert await store.integrity.check() == []


async def end_by_walltime(store: Store, after_s: float, *, this_clock_s: float = 0.0) -> int:
    """End jobs as the lease controller does, ``after_s`` seconds after their walltime has passed.
    The manager's clock is off by ``this_clock_s`` seconds."""
    await store.database.fetch(
        "UPDATE kernels SET ends_at = now() - make_interval(secs => $1)", float(after_s)
    )
    term = await store.leases.acquire("test", 60)
    assert term is not None
    found = await store.kernel_leases.with_walltime()
    over = outlived(found, datetime.now(UTC) + timedelta(seconds=this_clock_s))

    return await store.kernel_leases.expire(over, term, Reason.WALLTIME, "its walltime is over")


async def test_job_of_a_silent_agent_ends_with_its_walltime(store: Store) -> None:
    agent = await running(store)
    assert await end_by_walltime(store, GRACE_S + 30) == 0, (
        "its agent reports: it says when it has ended"
    )
    await mark_silent(store, lost=False)  # jobs tolerate days of silence
    assert await end_by_walltime(store, GRACE_S - 30) == 0
    assert await end_by_walltime(store, GRACE_S + 30, this_clock_s=-60) == 0, (
        "two clocks must agree"
    )
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.RUNNING
    assert await end_by_walltime(store, GRACE_S + 30) == 1
    await reconcile_all(store)
    view = await store.sessions.get(SYSTEM, "job")
    assert (view.status, view.reason) == (Status.TERMINATED, Reason.WALLTIME)
    assert await store.integrity.check() == []
    agent.seen = {}
    await agent.report()  # it returns, and releases its resources
    assert (await store.agents.get("node-1")).kernels == 0


async def test_stopping_job_of_a_silent_agent_ends_with_its_walltime(store: Store) -> None:
    await running(store)
    await mark_silent(store)
    await stop(store, "job")
    assert await end_by_walltime(store, GRACE_S + 30) == 1
    await reconcile_all(store)
    assert (await store.sessions.get(SYSTEM, "job")).status is Status.TERMINATED


async def test_contact_after_the_look_keeps_the_kernel(store: Store) -> None:
    agent = await running(store, retries=1)
    await mark_silent(store, lost=False)
    found = await store.kernel_leases.on_silent_agents()
    assert [one.lease_s for one in found] == [600]
    await agent.report()
    term = await store.leases.acquire("test", 60)
    assert term is not None
    assert await store.kernel_leases.expire(found, term) == 0


async def test_contact_that_a_silent_agent_had_after_the_look_keeps_the_kernel(
    store: Store,
) -> None:
    """It was heard from, but has become silent again since."""
    await running(store, retries=1)
    await mark_silent(store)
    seen = await store.kernel_leases.on_silent_agents()
    await store.database.fetch("UPDATE agents SET last_seen = last_seen + interval '1 s'")
    term = await store.leases.acquire("test", 60)
    assert term is not None
    assert await store.kernel_leases.expire(seen, term) == 0
    assert await store.kernel_leases.expire(await store.kernel_leases.on_silent_agents(), term) == 1


async def test_kernel_that_has_ended_after_the_look_keeps_its_end(store: Store) -> None:
    await running(store, retries=1)
    await mark_silent(store)
    seen = await store.kernel_leases.on_silent_agents()
    await store.database.fetch("UPDATE kernels SET status = 'TERMINATED', reason = 'exit-zero'")
    term = await store.leases.acquire("test", 60)
    assert term is not None
    assert await store.kernel_leases.expire(seen, term) == 0
    [kernel] = await store.database.fetch("SELECT status, reason, detail FROM kernels")
    assert tuple(kernel) == ("TERMINATED", "exit-zero", "")


async def test_former_leader_expires_nothing(store: Store) -> None:
    await running(store, retries=1)
    await mark_silent(store)
    assert await store.kernel_leases.expire(await store.kernel_leases.on_silent_agents(), -1) == 0
