"""Limits that an agent reports: the number of kernels, and the shares of its devices."""

from __future__ import annotations

from dataclasses import replace

from moorage.common.link.messages import Report
from moorage.common.model.paging import Paging
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Status
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.store import Store

from .conftest import FakeAgent, reconcile_all, schedule

SYSTEM = Scope.system()


def limited(agent: FakeAgent, **limits: int) -> Report:
    report = agent.full_report()
    return replace(report, info=replace(report.info, **limits))  # type: ignore[arg-type]


async def add(store: Store, name: str, **resources: float) -> None:
    spec = SessionSpec.model_validate({"command": ["x"], "name": name, "resources": resources})
    await store.sessions.create(Scope.system("t"), spec)


async def placed(store: Store) -> set[str]:
    views = await store.sessions.page(SYSTEM, Paging(50), statuses=frozenset({Status.SCHEDULED}))
    return {view.name for view in views.items}


async def test_agent_gets_at_most_its_maximum_of_kernels(store: Store) -> None:
    agent = FakeAgent(store)
    await store.reports.apply(AgentUpdate.of(limited(agent, max_kernels=2)))
    for name in ("a", "b", "c"):
        await add(store, name, cpu=1)

    assert await schedule(store) == 2
    assert await schedule(store) == 0
    assert await placed(store) == {"a", "b"}
    held = (await store.sessions.get(SYSTEM, "c")).hold
    assert held is not None
    assert any("runs its maximum of 2 kernels" in line for line in held.refusals), held.refusals
    view = await store.agents.get(agent.name)
    assert (view.kernels, view.max_kernels) == (2, 2)
    agent.see(
        (await store.sessions.get(SYSTEM, "a")).kernels[0].id,
        ObservedState.EXITED,
        reason=Reason.EXIT_ZERO,
    )
    await store.reports.apply(AgentUpdate.of(limited(agent, max_kernels=2)))
    await reconcile_all(store)
    assert await schedule(store) == 1
    assert await placed(store) == {"b", "c"}


async def test_device_shares_respect_the_agents_quantum_and_minimum(store: Store) -> None:
    agent = FakeAgent(store, gpus=1)
    await store.reports.apply(AgentUpdate.of(limited(agent, share_quantum=250, share_minimum=500)))
    for share in (0.3, 0.25, 0.75):
        await add(store, f"s{share}", **{"cuda.shares": share})
    assert await schedule(store) == 1
    assert await placed(store) == {"s0.75"}
    (seen,) = (await store.scheduling.snapshot("default")).agents
    assert [(device.quantum, device.minimum) for device in seen.devices] == [(250, 500)]
