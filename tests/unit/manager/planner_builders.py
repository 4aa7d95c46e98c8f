"""Short builders for planner input, and readers for plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.manager.scheduling import (
    AgentState,
    DeviceState,
    HeldSession,
    Pending,
    Plan,
    Policy,
    Snapshot,
    plan,
)
from moorage.manager.scheduling.core.model import KernelRequest

NOW = 1_000_000


def node(
    name: str,
    cpu: int = 4,
    mem: int = 8192,
    gpus: int = 0,
    *,
    free_cpu: int | None = None,
    **fields: Any,
) -> AgentState:
    """``free_cpu``: the free part of ``cpu``; all of ``mem`` is free."""
    free = {
        "cpu": (cpu if free_cpu is None else free_cpu) * 1000,
        "mem": fields.pop("free_mem", mem),
    }
    devices = tuple(DeviceState(DeviceId(f"{n}"), "cuda.device", 1000) for n in range(gpus))
    return AgentState(
        AgentId(name),
        frozenset({"process"}),
        engines=frozenset({"custom"}),
        free=free,
        capacity={"cpu": cpu * 1000, "mem": mem},
        devices=fields.pop("devices", devices),
        **fields,
    )


def session(name: str, cpu: int = 1, mem: int = 0, created: int = 0, **fields: Any) -> Pending:
    slots = {"cpu": cpu * 1000, "mem": mem} | fields.pop("slots", {})
    head = (SessionId(name), KernelId(f"k-{name}"), 1, fields.pop("priority", 10), created)
    return Pending(*head, fields.pop("retries", 0), "process", "custom", slots, **fields)


def cluster(name: str, *cpus: int, mode: str, **fields: Any) -> Pending:
    others = tuple(
        KernelRequest(KernelId(f"k-{name}-{n}"), {"cpu": cpu * 1000})
        for n, cpu in enumerate(cpus[1:], 1)
    )
    return session(name, cpus[0], sub_kernels=others, mode=mode, **fields)


def make_plan(agents: Sequence[AgentState], pending: Sequence[Pending], **options: Any) -> Plan:
    given = {name: options.pop(name) for name in ("quotas", "cursors", "usage") if name in options}
    selectors = options.pop("selectors", None)
    return plan(
        Snapshot("g", tuple(agents), tuple(pending), **given), Policy(**options), NOW, selectors
    )


def placements(result: Plan) -> dict[str, list[str]]:
    return {
        place.session_id: [kernel.agent_id for kernel in place.kernels] for place in result.places
    }


def hold(result: Plan, name: str) -> HeldSession:
    (found,) = (held for held in result.holds if held.session_id == name)
    return found
