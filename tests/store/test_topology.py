"""Device topology, from the agent's report through to the planner and the views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moorage.common.link.messages import Report, SlotOffer
from moorage.common.model.ids import DeviceId
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.scheduling import Policy, plan
from moorage.manager.store import Store

from .conftest import FakeAgent


def gpu(index: int, **near: object) -> SlotOffer:
    return SlotOffer(
        "cuda.device",
        1000,
        device_id=DeviceId(f"GPU-{index}"),
        model="H100",
        memory_bytes=80,
        **near,
    )  # type: ignore[arg-type]


OFFERS = (
    SlotOffer("cpu", 8000),
    gpu(0, numa=0),
    gpu(1, numa=0, nvlink_domain="1"),
    gpu(2, numa=1),
    gpu(3, numa=1, nvlink_domain="1"),
    SlotOffer(
        "cuda-1g10gb.device", 1000, DeviceId("MIG-0"), "H100", 10, numa=1, parent=DeviceId("GPU-4")
    ),
)


def with_offers(agent: FakeAgent, *offers: SlotOffer) -> Report:
    report = agent.full_report()
    return replace(report, info=replace(report.info, offers=offers))


async def test_planner_sees_the_reported_topology(store: Store) -> None:
    agent = FakeAgent(store)
    await store.reports.apply(AgentUpdate.of(with_offers(agent, *OFFERS)))
    (seen,) = (await store.scheduling.snapshot("default")).agents
    near = {d.device_id: (d.numa, d.peers, d.parent, d.quantum) for d in seen.devices}
    assert near == {
        "GPU-0": (0, frozenset(), "", 1),
        "GPU-1": (0, frozenset({"GPU-3"}), "", 1),
        "GPU-2": (1, frozenset(), "", 1),
        "GPU-3": (1, frozenset({"GPU-1"}), "", 1),
        "MIG-0": (1, frozenset(), "GPU-4", 1000),
    }
    view = {
        o.device_id: (o.numa, o.nvlink_domain, o.parent)
        for o in (await store.agents.get(agent.name)).offers
    }
    assert view["GPU-3"] == (1, "1", "")
    assert view["MIG-0"] == (1, "", "GPU-4")
    assert view[""] == (None, "", "")

    # Facts that an agent learns later are also used.
    offers = OFFERS[0], gpu(0, nvlink_domain="0"), gpu(2, nvlink_domain="0")
    await store.reports.apply(AgentUpdate.of(with_offers(agent, *offers)))
    (seen,) = (await store.scheduling.snapshot("default")).agents
    known = {d.device_id: (d.numa, d.peers) for d in seen.devices if d.capacity}
    assert known == {"GPU-0": (None, {"GPU-2"}), "GPU-2": (None, {"GPU-0"})}


@pytest.mark.parametrize(
    ("resources", "devices"),
    [({"cuda.device": 2}, {"GPU-1", "GPU-3"}), ({"cuda-1g10gb.device": 1}, {"MIG-0"})],
    ids=["linked ones", "a slice"],
)
async def test_connected_devices_are_allocated_together(
    store: Store, resources: dict[str, str | int | float], devices: set[str]
) -> None:
    await store.reports.apply(AgentUpdate.of(with_offers(FakeAgent(store), *OFFERS)))
    await store.sessions.create(Scope.system("t"), SessionSpec(command=["x"], resources=resources))
    (place,) = plan(await store.scheduling.snapshot("default"), Policy()).places
    assert {take.device_id for take in place.allocations if take.device_id} == devices
