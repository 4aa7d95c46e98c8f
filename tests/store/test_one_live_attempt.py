"""At most one live attempt: a new one is placed only when every kernel of the earlier one has
ended."""

from __future__ import annotations

import asyncpg
import pytest

from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.resources import SessionView
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.scope import Scope
from moorage.manager.scheduling import Place
from moorage.manager.scheduling.core.results import Victim
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, reconcile_all, schedule, stop

SYSTEM = Scope.system()

CURE = "moorage agents forget node-1 --destroyed"


async def running(store: Store, agent: FakeAgent, **more: object) -> str:
    """Create session ``job`` and run it on ``agent``. Returns the id of its kernel."""
    await agent.report()
    base: dict[str, object] = {"name": "job", "command": ["x"], "resources": {"cpu": 1}}
    await store.sessions.create(Scope.system("t"), SessionSpec.model_validate(base | more))
    assert await schedule(store) == 1
    kernel = (await job(store)).kernels[0].id
    agent.see(kernel, ObservedState.RUNNING)
    await agent.report()
    await reconcile_all(store)

    return kernel


async def job(store: Store) -> SessionView:
    return await store.sessions.get(SYSTEM, "job")


async def preempt(store: Store) -> None:
    victim = Victim(SessionId((await job(store)).id), SessionId("other"), "requeue", 0)
    term = await store.leases.acquire("test", 60)
    assert term is not None
    assert await SessionTerminator(store, LOST_GRACE_S).preempt([victim], term) == 1


async def set_status(store: Store, status: str, agent: str = "node-1") -> None:
    for step in ("SUSPECT", status):
        await store.database.fetch("UPDATE agents SET status = $1 WHERE id = $2", step, agent)
    store.reports.invalidate([AgentId(agent)])
    await reconcile_all(store)


async def force_place(store: Store, agent: str) -> int:
    """Place the pending attempt regardless of the planner."""
    view = await job(store)
    term = await store.leases.acquire("test", 60)
    assert term is not None
    kernel = next(k.id for k in view.kernels if k.attempt == view.attempt)
    return await store.scheduling.place([Place(view.id, kernel, view.revision, agent, ())], term)  # type: ignore[arg-type]


async def test_preempted_session_waits_for_the_end_of_its_earlier_attempt(store: Store) -> None:
    agent = FakeAgent(store)
    other = FakeAgent(store, "node-2")
    kernel = await running(store, agent)
    await other.report()
    await preempt(store)
    assert await schedule(store) == 0, "the first attempt is in its grace period"
    hold = (await job(store)).hold
    assert hold is not None
    assert hold.reason is Reason.EARLIER_ATTEMPT
    assert any(CURE in line for line in hold.refusals)
    why = await ExplanationService(store, StoreClock()).why(SYSTEM, "job")
    [unmet] = [condition for condition in why.conditions if not condition.met]
    assert (unmet.kind, CURE in unmet.text) == ("earlier attempt", True)
    agent.see(kernel, ObservedState.EXITED, exit_code=-15)
    await agent.report()
    assert await schedule(store) == 1
    assert [k.status for k in (await job(store)).kernels] == [Status.TERMINATED, Status.SCHEDULED]


async def test_place_statement_refuses_a_second_live_attempt(store: Store) -> None:
    await running(store, FakeAgent(store))
    await FakeAgent(store, "node-2").report()
    await preempt(store)
    await store.database.fetch(
        "DROP INDEX kernels_one_live_attempt"
    )  # it would refuse the same placement
    assert await force_place(store, "node-2") == 0
    assert (await job(store)).status is Status.PENDING


async def test_constraint_refuses_a_second_live_attempt(store: Store) -> None:
    await running(store, FakeAgent(store))
    await preempt(store)
    with pytest.raises(asyncpg.UniqueViolationError, match="kernels_one_live_attempt"):
        await store.database.fetch(
            "UPDATE kernels SET status = 'SCHEDULED', agent_id = 'node-1' WHERE status = 'PENDING'"
        )


async def test_overlap_allowed_starts_at_once(store: Store) -> None:
    await running(store, FakeAgent(store), overlap="allowed")
    await preempt(store)
    assert await schedule(store) == 1


async def test_replicas_of_endpoints_may_overlap(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    spec = EndpointSpec(name="m", command=["x"], probe={"path": "/"}, resources={"cpu": 1})
    endpoint = await store.endpoints.create(Scope.system("t"), spec)
    session = spec.session("job")
    await store.sessions.create(
        Scope.system("t"), session, endpoint_id=endpoint.snapshot.endpoint_id
    )  # type: ignore[arg-type]
    assert await schedule(store) == 1
    await preempt(store)
    assert await schedule(store) == 1


async def test_start_on_a_suspect_agent_is_not_repeated_elsewhere(store: Store) -> None:
    """The orders may have arrived, so the program may be running there."""
    agent = FakeAgent(store)
    other = FakeAgent(store, "node-2")
    await agent.report()
    spec = SessionSpec(name="job", command=["x"], resources={"cpu": 1})
    await store.sessions.create(Scope.system("t"), spec)
    assert await schedule(store) == 1
    await other.report()
    kernel = (await job(store)).kernels[0].id
    await set_status(store, "SUSPECT")
    await store.database.fetch("UPDATE sessions SET deadline_at = now() WHERE status = 'SCHEDULED'")
    await reconcile_all(store)
    view = await job(store)
    assert (view.status, view.attempt, view.reason) == (Status.PENDING, 2, Reason.START_TIMEOUT)
    assert await schedule(store) == 0
    assert await force_place(store, "node-2") == 0
    agent.see(kernel, ObservedState.GONE)
    await agent.report()
    assert await schedule(store) == 1


async def test_kernel_tells_since_when_its_agent_is_silent(store: Store) -> None:
    agent = FakeAgent(store)
    await running(store, agent, on_lost_agent="wait")
    assert (await job(store)).kernels[0].silent_since is None
    await set_status(store, "SUSPECT")
    [suspect] = (await job(store)).kernels
    assert suspect.silent_since is not None
    assert suspect.unreachable_since is None, "it may report again soon"
    await set_status(store, "LOST")
    [lost] = (await job(store)).kernels
    assert lost.silent_since == lost.unreachable_since == suspect.silent_since
    await agent.report()
    assert (await job(store)).kernels[0].silent_since is None


async def test_session_without_retries_ends_with_its_lost_agent(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await running(store, agent)
    await set_status(store, "LOST")
    view = await job(store)
    assert (view.status, view.reason) == (Status.ERROR, Reason.AGENT_LOST)
    assert view.kernels[0].status is Status.TERMINATING, "nobody has seen it end"
    assert view.kernels[0].unreachable_since is not None
    assert await store.integrity.check() == []
    await agent.report()  # the agent is back, and has no order for the kernel
    assert await store.orders.of(agent.full_report().info.agent_id) == ()
    agent.see(kernel, ObservedState.EXITED, exit_code=-15)
    await agent.report()
    assert (await job(store)).kernels[0].status is Status.TERMINATED
    assert await store.integrity.check() == []


async def test_session_that_waits_for_its_agent_goes_on_when_it_returns(store: Store) -> None:
    agent = FakeAgent(store)
    kernel = await running(store, agent, on_lost_agent="wait")
    await set_status(store, "LOST")
    why = await ExplanationService(store, StoreClock()).why(SYSTEM, "job")
    for part in ("RUNNING", "node-1", "on_lost_agent: wait", CURE):
        assert part in why.text

    await agent.report()
    view = await job(store)
    assert (view.status, view.kernels[0].unreachable_since) == (Status.RUNNING, None)
    agent.see(kernel, ObservedState.EXITED, exit_code=0, reason=Reason.EXIT_ZERO)
    await agent.report()
    await reconcile_all(store)
    assert (await job(store)).status is Status.TERMINATED


async def test_destroyed_node_ends_its_kernels_and_frees_what_they_hold(store: Store) -> None:
    await running(store, FakeAgent(store), retries=1, retry_backoff_s=1)
    await FakeAgent(store, "node-2").report()
    await set_status(store, "LOST")
    assert (await job(store)).status is Status.RUNNING
    await store.agents.forget("node-1", actor="root", destroyed=True)
    await reconcile_all(store)
    view = await job(store)
    assert (view.status, view.reason, view.requeues) == (Status.PENDING, Reason.AGENT_LOST, 1)
    await store.database.fetch("UPDATE sessions SET not_before = now()")
    assert await schedule(store) == 1
    held = await store.database.fetch(
        "SELECT * FROM agent_slots WHERE agent_id = 'node-1' AND used <> 0"
    )
    assert held == []
    assert await store.integrity.check() == []


async def test_stop_on_a_lost_agent_ends_with_its_kernel(store: Store) -> None:
    await running(store, FakeAgent(store), on_lost_agent="wait")
    await set_status(store, "LOST")
    assert (await stop(store, "job", actor="me")).status is Status.TERMINATING
    await store.database.fetch(
        "UPDATE sessions SET deadline_at = now() WHERE status = 'TERMINATING'"
    )
    await reconcile_all(store)
    view = await job(store)
    assert (view.status, view.reason, view.deadline_at) == (
        Status.TERMINATING,
        Reason.USER_REQUESTED,
        None,
    )
    assert CURE in view.detail
    assert [e.event for e in (await store.sessions.history(SYSTEM, "job")).items][-2:] == [
        "stop",
        "stop-overdue",
    ]
    assert await store.integrity.check(grace_s=0) == [], "it waits, and is not stuck"
    await store.agents.forget("node-1", actor="root", destroyed=True)
    await reconcile_all(store)
    view = await job(store)
    assert (view.status, view.reason) == (Status.TERMINATED, Reason.USER_REQUESTED)
