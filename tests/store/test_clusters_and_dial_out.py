"""Clusters across several nodes, and agents that only dial out."""

from __future__ import annotations

from dataclasses import replace

from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.explain.service import ExplanationService
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.scheduling import Policy
from moorage.manager.scheduling import plan as plan_of
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent, open_store, schedule
from .test_clusters import SYSTEM, agents_on, make, runs, spec, status


async def reach(agent: FakeAgent, host: str) -> None:
    """Send a report as an agent that can be reached at ``host``."""
    update = AgentUpdate.of(agent.full_report())
    info = replace(update.info, address=host)
    await agent.store.reports.apply(replace(update, info=info))


async def test_agent_that_dials_out_takes_no_cluster_over_several(store: Store) -> None:
    agents = await agents_on(store, 2)
    await make(store, spec(2, "multi-node"))
    term = await store.leases.acquire("test", 60)
    assert term is not None
    (place,) = plan_of(await store.scheduling.snapshot("default"), Policy()).places
    for agent in agents:
        await reach(agent, f"{agent.name}.agent.invalid")
        assert await store.scheduling.place([place], term) == 0, (
            "it began to dial out after the snapshot"
        )
        await reach(agent, "127.0.0.1")

    await reach(agents[0], "node-1.agent.invalid")
    assert await schedule(store) == 0
    explanations = ExplanationService(store, StoreClock())
    why = await explanations.why(SYSTEM, "c")
    assert any("1 agent: only dials out" in line for line in why.refusals), why
    planned = await explanations.plan_session(SYSTEM, spec(2, "multi-node"))
    assert not planned.fits
    assert any("cluster mode single-node" in line for line in planned.refusals)
    assert (await explanations.plan_session(SYSTEM, spec(2, "single-node"))).fits
    await reach(agents[0], "127.0.0.1")
    assert await schedule(store) == 1, "the scheduler is told that it is reached directly again"


async def test_running_cluster_keeps_the_address_of_an_agent_that_begins_to_dial_out(
    store: Store,
) -> None:
    """A manager of the previous release instructs agents to dial out, and stores their own
    address."""
    agents = await agents_on(store, 2)
    await make(store, spec(2, "multi-node"))
    await runs(agents, store)

    for host, direct in (("node-1.agent.invalid", "127.0.0.1"), ("127.0.0.1", "")):
        await reach(agents[0], host)
        await store.database.fetch(
            "UPDATE agents SET direct_address = $1 WHERE id = 'node-1'", direct
        )
        async with open_store(store.database.dsn) as other:
            (order,) = await other.orders.of(AgentId("node-2"))

        assert order.cluster is not None
        assert {member.address for member in order.cluster.members} == {"127.0.0.1"}
        assert await status(store) == (Status.RUNNING, Reason.NONE)
