"""Clusters on one agent whose kernels request whole devices and fractions."""

from __future__ import annotations

import pytest

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy, Snapshot, plan
from moorage.manager.scheduling.core.model import KernelRequest


@pytest.mark.parametrize("fraction", ["even", "fill"])
def test_fraction_splits_no_device_that_another_kernel_needs_whole(fraction: str) -> None:
    frees = {"g0": 500, "g1": 1000, "g2": 1000}
    devices = tuple(
        DeviceState(DeviceId(name), "cuda.device", free) for name, free in frees.items()
    )
    agent = AgentState(
        AgentId("a"),
        frozenset({"process"}),
        engines=frozenset({"custom"}),
        free={"cpu": 9000},
        capacity={"cpu": 9000},
        devices=devices,
    )
    item = Pending(
        SessionId("s"), KernelId("k"), 1, 10, 0, 0, "process", "custom", {"cuda.device": 1},
        sub_kernels=(KernelRequest(KernelId("k-1"), {"cuda.shares": 1500}),), mode="single-node",
    )  # fmt: skip
    (place,) = plan(Snapshot("g", (agent,), (item,)), Policy(fraction=fraction), 1).places  # type: ignore[arg-type]
    allocated = sorted(
        (t.device_id, t.amount) for kernel in place.kernels for t in kernel.allocations
    )
    assert allocated == [("g0", 500), ("g1", 1000), ("g2", 1000)]
