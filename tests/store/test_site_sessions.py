"""Sessions whose jobs wait in a site's queue, and how the store keeps what their agent reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import Report, SlotOffer
from moorage.common.model.errors import Conflict
from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.hpc_options import HpcOptions
from moorage.common.model.ids import AgentId
from moorage.common.model.kernel import HpcJob, SiteNodes
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.common.views.endpoints import EndpointView
from moorage.manager.endpoint_service import EndpointService, endpoint_view
from moorage.manager.explain.service import ExplanationService
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.deadlines import WALLTIME_MARGIN_S
from moorage.manager.loops import Leader, ReplicaController
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.site_jobs import as_job
from tests.clocks import StoreClock

from .conftest import LOST_GRACE_S, FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system("t")
SITE: dict[str, Any] = {"runtime": "fake", "walltime_s": 600}


async def test_queue_of_a_site_is_kept_and_shown(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    spec = SessionSpec(command=["x"], queue_timeout_s=3600, walltime_s=60, start_timeout_s=5)
    made = await store.sessions.create(SYSTEM, spec)
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, made.id)).kernels[0]
    starts = datetime.now(UTC) + timedelta(hours=2)
    ends = datetime.now(UTC) + timedelta(hours=3)

    async def shown(state: ObservedState, **fields: object) -> Status:
        agent.see(kernel.id, state, **fields)
        await agent.report()
        await reconcile_all(store)
        return (await store.sessions.get(SYSTEM, made.id)).status

    assert (
        await shown(ObservedState.QUEUED, detail="Priority", expected_start=starts.timestamp())
        is Status.QUEUED
    )
    view = await store.sessions.get(SYSTEM, made.id)
    assert view.deadline_at is not None
    assert (view.deadline_at - view.status_since).total_seconds() > 3000, (
        "no start timeout counts there"
    )
    assert (view.kernels[0].detail, view.kernels[0].expected_start) == ("Priority", starts)
    assert (await store.groups.get("default")).running == 1
    assert ("session", "QUEUED", "default", 1) in await store.counts()
    assert [one.kernel_id for one in await store.orders.of(AgentId(agent.name))] == [kernel.id]
    sooner = starts - timedelta(hours=1)
    assert (
        await shown(ObservedState.QUEUED, detail="Resources", expected_start=sooner.timestamp())
        is Status.QUEUED
    )
    view = await store.sessions.get(SYSTEM, made.id)
    assert (view.kernels[0].detail, view.kernels[0].expected_start) == ("Resources", sooner)
    assert await shown(ObservedState.UNKNOWN) is Status.QUEUED
    assert (
        await shown(ObservedState.CREATING, expected_start=0.0, ends_at=ends.timestamp())
        is Status.CREATING
    )
    assert await shown(ObservedState.RUNNING, ends_at=ends.timestamp()) is Status.RUNNING
    view = await store.sessions.get(SYSTEM, made.id)
    assert (view.kernels[0].expected_start, view.kernels[0].ends_at) == (None, ends)
    assert view.deadline_at is not None
    assert abs((view.deadline_at - ends).total_seconds() - 300) < 5


async def placed_job(store: Store, **fields: object) -> tuple[FakeAgent, str]:
    """A site's agent, and a session that was placed there."""
    site = HpcOptions(**SITE)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 5)
    await agent.report()
    spec = SessionSpec.model_validate({"command": ["x"], "resource_group": "hpc"} | fields)
    made = await store.sessions.create(SYSTEM, as_job(spec, site))
    assert await schedule(store) == 1

    return agent, made.id


async def test_newest_observation_of_a_start_counts_with_the_deadline_of_its_status(
    store: Store,
) -> None:
    """A job was reported as starting before it was checked, or its site puts it back into the
    queue."""
    agent, session = await placed_job(store, start_timeout_s=5)
    [kernel] = (await store.sessions.get(SYSTEM, session)).kernels
    limit_s = 600 + WALLTIME_MARGIN_S  # which only the agent can observe better
    for state, status, within_s in (
        (ObservedState.UNKNOWN, Status.SCHEDULED, 60),
        (ObservedState.CREATING, Status.CREATING, limit_s),
        (ObservedState.QUEUED, Status.QUEUED, None),
        (ObservedState.UNKNOWN, Status.QUEUED, None),
        (ObservedState.CREATING, Status.CREATING, limit_s),
        (ObservedState.PREPARING, Status.PREPARING, limit_s),
        (ObservedState.QUEUED, Status.QUEUED, None),
        (ObservedState.RUNNING, Status.RUNNING, limit_s),
        (ObservedState.QUEUED, Status.RUNNING, limit_s),
    ):
        agent.see(kernel.id, state)
        await agent.report()
        await reconcile_all(store)
        view = await store.sessions.get(SYSTEM, session)
        assert view.status is status
        left_s = view.deadline_at and (view.deadline_at - view.status_since).total_seconds()
        assert left_s == (within_s if within_s is None else pytest.approx(within_s, abs=5))
        assert await store.integrity.check(grace_s=0) == []


async def test_limit_of_a_queue_does_not_count_while_nobody_says_that_the_job_waits(
    store: Store,
) -> None:
    agent, session = await placed_job(store, queue_timeout_s=1, max_attempts=1)
    [kernel] = (await store.sessions.get(SYSTEM, session)).kernels

    async def see(state: ObservedState, expected_start: float = 0.0) -> int:
        agent.see(kernel.id, state, expected_start=expected_start)
        return await agent.report()

    async def status_past_its_deadline() -> Status:
        await store.database.fetch("UPDATE sessions SET deadline_at = now() - interval '1 minute'")
        await reconcile_all(store)
        return (await store.sessions.get(SYSTEM, session)).status

    starts = (datetime.now(UTC) + timedelta(hours=2)).timestamp()
    await see(ObservedState.QUEUED, starts)
    await reconcile_all(store)
    assert await see(ObservedState.UNKNOWN) == 1, "its silence is stored"
    assert await see(ObservedState.UNKNOWN) == 0, "once"
    assert await status_past_its_deadline() is Status.QUEUED
    view = await store.sessions.get(SYSTEM, session)
    assert view.kernels[0].expected_start is not None, "what its site last said"
    assert await store.integrity.check(grace_s=0) == []
    assert await see(ObservedState.QUEUED, starts) == 1
    await store.database.fetch("UPDATE agents SET status = 'SUSPECT'")
    assert await status_past_its_deadline() is Status.QUEUED
    await store.database.fetch("UPDATE agents SET status = 'ALIVE'")
    assert await status_past_its_deadline() is Status.TERMINATING
    assert (await store.sessions.get(SYSTEM, session)).reason is Reason.QUEUE_TIMEOUT


async def test_group_without_a_limit_for_its_queue_is_known_to_the_release_before(
    store: Store,
) -> None:
    """For these types the limit is a number with a default."""
    unlimited = HpcOptions(**SITE)
    assert unlimited.queue_timeout_s is None
    await store.groups.put("hpc", GroupOptions(hpc=unlimited), actor="t")
    [row] = await store.database.fetch(
        "SELECT options -> 'hpc' AS hpc FROM resource_groups WHERE name = 'hpc'"
    )
    assert "queue_timeout_s" not in row["hpc"]
    assert await store.groups.site("hpc") == unlimited
    limited = unlimited.model_copy(update={"queue_timeout_s": 60.0})
    await store.groups.put("hpc", GroupOptions(hpc=limited), actor="t")
    assert await store.groups.site("hpc") == limited


def as_site(agent: FakeAgent, jobs: int) -> None:
    """From here on it is an agent with a batch runtime."""

    def full_report() -> Report:
        report = type(agent).full_report(agent)
        assert report.info is not None
        info = replace(report.info, runtimes=("fake",), offers=(SlotOffer("jobs", jobs),))
        return replace(report, info=info)

    agent.full_report = full_report  # type: ignore[method-assign]


async def test_group_of_kind_hpc_places_sessions_as_jobs(store: Store) -> None:
    site = HpcOptions(runtime="fake", project="p1", walltime_s=600, options={"x": "y"})
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    assert await store.groups.site("hpc") == site
    assert await store.groups.site("default") is None
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 2)
    await agent.report()
    asked = SessionSpec(command=["x"], resource_group="hpc", resources={"cpu": 64, "mem": "1TiB"})
    made = [await store.sessions.create(SYSTEM, as_job(asked, site)) for _ in range(3)]
    assert await schedule(store) == 2, "its site takes two jobs"
    orders = await store.orders.of(AgentId("login"))
    assert [(o.runtime, o.slots["cpu"], o.hpc) for o in orders] == [
        ("fake", 64_000, HpcJob(project="p1", walltime_s=600, options={"x": "y"}))
    ] * 2
    view = await store.sessions.get(SYSTEM, made[2].id)
    assert view.status is Status.PENDING
    with pytest.raises(Conflict, match="its kind cannot change"):
        await store.groups.put("hpc", GroupOptions(), actor="t")

    longer = site.model_copy(update={"walltime_s": 1200.0})
    await store.groups.put("hpc", GroupOptions(hpc=longer), actor="t")
    assert await store.groups.site("hpc") == longer, "a change counts at once"


async def test_quota_of_a_group_limits_its_jobs(store: Store) -> None:
    site = HpcOptions(runtime="fake", walltime_s=600)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    await store.quotas.put(Scope.system("t"), "group", "hpc", QuotaLimits(slots={"jobs": 1}))
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 5)
    await agent.report()
    spec = as_job(SessionSpec(command=["x"], resource_group="hpc"), site)
    for _ in range(2):
        await store.sessions.create(SYSTEM, spec)

    assert await schedule(store) == 1


async def test_history_of_waits_and_loads_is_read_for_the_endpoints_of_a_site(store: Store) -> None:
    site = HpcOptions(runtime="fake", walltime_s=600, successor_at=0.8)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    spec = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf", resource_group="hpc")
    made, _ = await store.endpoints.create_once(SYSTEM, spec, [], {}, idempotency_key=None)
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 5)
    await agent.report()
    replica = as_job(spec.session("m-1", "hpc"), site)
    await store.sessions.create(
        SYSTEM, replica, endpoint_id=made.snapshot.endpoint_id, endpoint_revision=1
    )
    assert await schedule(store) == 1
    [order] = await store.orders.of(AgentId("login"))
    ends = datetime.now(UTC) + timedelta(seconds=500)
    for state in (ObservedState.QUEUED, ObservedState.CREATING, ObservedState.RUNNING):
        agent.see(order.kernel_id, state, ends_at=ends.timestamp())
        await agent.report()
        await reconcile_all(store)

    await store.database.fetch(
        "UPDATE session_history SET at = at - CASE event WHEN 'placed' THEN interval '100 s' "
        "WHEN 'queued' THEN interval '90 s' WHEN 'creating' THEN interval '30 s' ELSE interval '0' END"
    )
    [found] = await store.replicas.to_reconcile(SYSTEM, [made.snapshot.endpoint_id])
    history = found.starts["hpc"]
    assert (history.starts, round(history.queue_p90_s), round(history.load_p50_s)) == (1, 70, 30)
    [one] = found.replicas
    assert (one.ends_at, one.walltime_s, one.successor_at) == (ends, 600, 0.8)

    assert history == await store.replicas.start_history("hpc"), "of all jobs of the group"
    assert await store.replicas.start_history("default") is None
    times = await store.groups.start_times("hpc")
    assert times == history.view("hpc")
    assert (times.resource_group, times.starts, round(times.queue_wait_p90_s)) == ("hpc", 1, 70)
    assert await store.groups.start_times("default") is None
    record = await store.endpoints.get(SYSTEM, "m")
    assert endpoint_view(record, datetime.now(UTC)).start_times == [times]


async def test_routes_say_when_a_job_in_the_queue_of_its_site_will_be_ready(store: Store) -> None:
    site = HpcOptions(runtime="fake", walltime_s=600)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    spec = EndpointSpec(name="m", engine="llamacpp", model="/m.gguf", resource_group="hpc")
    made, _ = await store.endpoints.create_once(SYSTEM, spec, [], {}, idempotency_key=None)
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 5)
    await agent.report()

    async def observe(name: str, *states: ObservedState, **fields: float) -> None:
        """A replica of the endpoint passes through these states."""
        replica = as_job(spec.session(name, "hpc"), site)
        ids = {"endpoint_id": made.snapshot.endpoint_id, "endpoint_revision": 1}
        session = await store.sessions.create(SYSTEM, replica, **ids)  # type: ignore[arg-type]
        assert await schedule(store) == 1
        [kernel] = (await store.sessions.get(SYSTEM, session.id)).kernels
        for state in states:
            agent.see(kernel.id, state, **fields)
            await agent.report()
            await reconcile_all(store)

    ends = (datetime.now(UTC) + timedelta(seconds=500)).timestamp()
    await observe(
        "m-1", ObservedState.QUEUED, ObservedState.CREATING, ObservedState.RUNNING, ends_at=ends
    )
    [route] = (await store.routes.table()).models
    assert route.ready_at == 0, "none starts"
    await store.database.fetch("UPDATE kernels SET started_at = started_at - interval '30 s'")
    await store.routes.changes()
    starts = (datetime.now(UTC) + timedelta(hours=2)).timestamp()
    await observe("m-2", ObservedState.QUEUED, expected_start=starts)
    [route] = (await store.routes.changes()).models
    began_before = 100 + 30
    to_the_next_5_s = 5
    test_takes = 15
    loads_for = route.ready_at - starts
    assert began_before <= loads_for < began_before + to_the_next_5_s + test_takes, (
        "a job takes its load time, from the begin of its walltime"
    )


async def test_nodes_in_use_at_a_site_are_shown_with_its_group_and_explain_a_wait(
    store: Store,
) -> None:
    site = HpcOptions(runtime="fake", walltime_s=600)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    agents = [FakeAgent(store, name, group="hpc") for name in ("login", "spare")]
    for agent in agents:
        as_site(agent, 2)
        agent.site_nodes = (SiteNodes("qgpu", 7, 8),)
        await agent.report()

    assert [(n.name, n.used, n.total) for n in await store.groups.site_nodes("hpc")] == [
        ("qgpu", 7, 8)
    ]
    assert (await store.agents.get("login")).site_nodes[0].used == 7
    spec = as_job(SessionSpec(command=["x"], resource_group="hpc"), site)
    session = (await store.sessions.create(SYSTEM, spec)).id
    assert await schedule(store) == 1
    [kernel] = (await store.sessions.get(SYSTEM, session)).kernels
    [placed] = [agent for agent in agents if agent.name == kernel.agent_id]
    placed.see(kernel.id, ObservedState.QUEUED)
    await placed.report()
    await reconcile_all(store)
    why = await ExplanationService(store, StoreClock()).why(SYSTEM, session)
    assert why.basis.endswith("; 7 of 8 nodes of qgpu are in use")
    for agent in agents:
        agent.site_nodes = ()
        await agent.report()

    assert await store.groups.site_nodes("hpc") == []


async def test_why_says_when_a_job_in_the_queue_of_its_site_is_expected_to_start(
    store: Store,
) -> None:
    site = HpcOptions(runtime="fake", walltime_s=600)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 2)
    await agent.report()
    spec = as_job(SessionSpec(command=["x"], resource_group="hpc"), site)
    first, second, third = [(await store.sessions.create(SYSTEM, spec)).id for _ in range(3)]
    assert await schedule(store) == 2
    explain = ExplanationService(store, StoreClock())

    async def see(session: str, state: ObservedState, **fields: object) -> None:
        [kernel] = (await store.sessions.get(SYSTEM, session)).kernels
        agent.see(kernel.id, state, **fields)
        await agent.report()
        await reconcile_all(store)

    await see(second, ObservedState.QUEUED)
    view = await explain.why(SYSTEM, second)
    assert (view.status, view.expected_start) == (Status.QUEUED, None)
    assert view.basis.startswith("unknown: the site gives no estimate")

    for state in (ObservedState.QUEUED, ObservedState.CREATING, ObservedState.RUNNING):
        await see(first, state)

    await store.database.fetch(
        "UPDATE session_history SET at = at - CASE event WHEN 'placed' THEN interval '3700 s' "
        "WHEN 'queued' THEN interval '3690 s' WHEN 'creating' THEN interval '100 s' ELSE interval '0' END "
        "WHERE session_id = $1",
        first,
    )
    view = await explain.why(SYSTEM, second)
    assert view.expected_start is not None
    assert 3590 < (view.expected_start - view.since).total_seconds() < 3610
    assert view.basis.startswith("of the latest 1 jobs there, half waited at most 1h")
    view = await explain.why(SYSTEM, third)
    assert view.status is Status.PENDING
    assert "; then its site's queue: of the latest 1 jobs there" in view.basis

    told = datetime.now(UTC) + timedelta(hours=5)
    await see(second, ObservedState.QUEUED, expected_start=told.timestamp())
    view = await explain.why(SYSTEM, second)
    assert (view.expected_start, view.basis.split(";")[0]) == (told, "the site's own estimate")
    await store.database.fetch("UPDATE kernels SET expected_start = NULL")
    await store.database.fetch("UPDATE sessions SET status_since = status_since - interval '2 h'")
    view = await explain.why(SYSTEM, second)
    assert view.expected_start is None
    assert view.basis.startswith("unknown: it has already waited longer than most")


async def test_late_successor_is_told_once_and_shown_everywhere(store: Store) -> None:
    clock = ManualClock()
    site = HpcOptions(runtime="fake", walltime_s=600)
    await store.groups.put("hpc", GroupOptions(hpc=site), actor="t")
    agent = FakeAgent(store, "login", group="hpc")
    as_site(agent, 5)
    await agent.report()
    service = EndpointService(store.endpoints, store.loads, StoreClock())
    spec = EndpointSpec(
        name="m", engine="custom", command=["x"], probe=Probe(path="/h"), resource_group="hpc"
    )
    await service.create(SYSTEM, spec)
    leader = Leader(store, clock)
    controller = ReplicaController(store, leader, SessionTerminator(store, LOST_GRACE_S), clock)
    told: list[object] = []

    async def run() -> EndpointView:
        clock.advance(1.1)
        await store.database.fetch("DELETE FROM leases")
        await leader.run_once()
        await leader.deadlines.run_once()
        await controller.run_once()
        await store.database.fetch("DELETE FROM leases")
        await schedule(store)
        await store.database.fetch("DELETE FROM leases")
        return await service.get(SYSTEM, "m")

    [first] = (await run()).sessions
    [kernel] = (await store.sessions.get(SYSTEM, first.session_id)).kernels
    ends = datetime.now(UTC) + timedelta(seconds=50)
    for state in (ObservedState.QUEUED, ObservedState.CREATING, ObservedState.RUNNING):
        agent.see(kernel.id, state, ends_at=ends.timestamp())
        await agent.report()
        await reconcile_all(store)

    await run()
    view = await run()
    second = next(one for one in view.sessions if one.session_id != first.session_id)
    [kernel] = (await store.sessions.get(SYSTEM, second.session_id)).kernels
    later = datetime.now(UTC) + timedelta(hours=2)
    agent.see(kernel.id, ObservedState.QUEUED, expected_start=later.timestamp())
    await agent.report()
    await reconcile_all(store)
    store.notifier.on_endpoints(told.append)
    view = await run()
    assert told, "watchers read the endpoint again"
    told.clear()
    await run()
    assert not told, "once"
    assert view.late_successor is not None
    assert (view.late_successor.session_id, view.late_successor.ends_at) == (first.session_id, ends)
    assert view.late_successor.expected_at is not None
    assert view.late_successor.expected_at >= later
    why = await ExplanationService(store, StoreClock()).why(SYSTEM, first.session_id)
    assert "its successor is expected for" in why.text
