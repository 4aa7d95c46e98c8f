"""Sessions whose jobs wait in the queue of a site, as the store keeps what their agent reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from moorage.common.model.ids import AgentId
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store

from .conftest import FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system("t")


async def test_queue_of_a_site_is_kept_and_shown(store: Store) -> None:
    agent = FakeAgent(store)
    await agent.report()
    spec = SessionSpec(command=["x"], queue_timeout_s=3600, walltime_s=60, start_timeout_s=5)
    made = await store.sessions.create(SYSTEM, spec)
    assert await schedule(store) == 1
    kernel = (await store.sessions.get(SYSTEM, made.id)).kernels[0]
    starts, ends = datetime.now(UTC) + timedelta(hours=2), datetime.now(UTC) + timedelta(hours=3)

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
    assert (view.deadline_at - view.status_since).total_seconds() > 3000, "no start timeout counts there"
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
        await shown(ObservedState.CREATING, expected_start=0.0, ends_at=ends.timestamp()) is Status.CREATING
    )
    assert await shown(ObservedState.RUNNING, ends_at=ends.timestamp()) is Status.RUNNING
    view = await store.sessions.get(SYSTEM, made.id)
    assert (view.kernels[0].expected_start, view.kernels[0].ends_at) == (None, ends)
    assert view.deadline_at is not None
    assert abs((view.deadline_at - ends).total_seconds() - 300) < 5
