"""Maps rows to the planner's values: pending sessions, agents with their devices, and running
kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Literal

from moorage.common.model.addresses import is_dial_out_host
from moorage.common.model.checkpointing import granted_grace_s
from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.runtimes import required_runtime
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.model import (
    AgentState,
    Allocation,
    DeviceState,
    Pending,
    Running,
)
from moorage.manager.store.database.rows import Row
from moorage.manager.store.database.unreadable import UnreadableRows
from moorage.manager.store.sessions import spec_kernels
from moorage.manager.store.sessions.rows import parse_spec


def _micros(at: datetime) -> int:
    """Unix microseconds, the planner's unit of time."""
    return round(at.timestamp() * 1_000_000)


def pending(row: Row) -> Pending:
    """Pending session from a row of ``pending_sessions.sql``, which returns only sessions whose
    backoff and begin time have passed."""
    dependencies, waits_on = unmet(row)

    # The whole specification is read even where a column would suffice, because a session with
    # unknown parts must not be placed.
    spec = parse_spec(row["spec"])
    cluster = spec if spec.cluster is not None else None
    return Pending(
        session_id=SessionId(row["id"]),
        kernel_id=KernelId(row["kernel_id"]),
        revision=row["revision"],
        priority=row["priority"],
        created=_micros(row["created_at"]),
        retries=row["retries"],
        runtime=required_runtime(row["runtime"], row["isolated"]),
        engine=row["engine"],
        slots=spec_kernels.main_slots(cluster) if cluster else row["slots"],
        sub_kernels=spec_kernels.sub_requests(cluster, row["subs"]) if cluster else (),
        mode=cluster.cluster.mode if cluster and cluster.cluster else "single-node",
        avoid=frozenset(AgentId(a) for a in row["avoid"]),
        user=row["owner"],
        project=row["project"],
        session_type=row["type"],
        arch=row["arch"] or "",
        labels=row["labels"] or {},
        designated=frozenset(AgentId(a) for a in row["agents"] or ()),
        # The duration of the start is unknown but short compared to the run, so it is omitted.
        time_limit=None
        if row["runs_s"] is None
        else round((row["runs_s"] + row["stop_s"]) * 1_000_000),
        dependencies=dependencies,
        waits_on=waits_on,
        endpoint_id=EndpointId(row["endpoint_id"]) if row["endpoint_id"] else None,
        earlier_agents=tuple(AgentId(agent) for agent in row["earlier_agents"] or ()),
        bypassed=row["bypassed"],
        waiting_since=_micros(row["status_since"]),
        node_seconds=ceil(row["job_s"] or 0),  # a job is one node
        qos=spec.qos or "",
    )


def unmet(row: Row) -> tuple[Literal["met", "unmet", "failed"], tuple[SessionId, ...]]:
    """``dependencies`` and ``waits_on`` of a pending session."""
    dependencies = row["unmet_dependencies"]
    if not dependencies:
        return "met", ()
    if failed := tuple(SessionId(other) for other, state in dependencies if state == "failed"):
        return "failed", failed
    # An array element that waits for its turn depends on itself: it names no other session.
    others = (SessionId(other) for other, _ in dependencies)
    return "unmet", tuple(other for other in others if other != row["id"])


@lru_cache(maxsize=65_536)
def _device(
    device: str,
    slot: str,
    free: int,
    capacity: int,
    healthy: bool,
    topology: str,
    peers: frozenset[DeviceId],
    parts: tuple[int, int],
) -> DeviceState:
    """Cached, because most of a thousand agents' devices are in the same few states: all free, or
    all allocated.

    ``topology``: ``numa|nvlink_domain|parent``; empty if the agent does not report topology.
    ``parts``: the agent's quantum and minimum for shares.
    """
    numa, _, parent = topology.split("|") if topology else ("", "", "")
    quantum, minimum = (WHOLE_DEVICE, 1) if parent else parts  # a slice is allocated whole
    return DeviceState(
        DeviceId(device),
        slot,
        free=free,
        capacity=capacity,
        healthy=healthy,
        numa=int(numa) if numa else None,
        peers=peers - {DeviceId(device)},
        parent=DeviceId(parent),
        quantum=quantum,
        minimum=minimum,
    )


@lru_cache(maxsize=65_536)
def _nvlink_domains(
    devices: tuple[str, ...], topologies: tuple[str, ...]
) -> Mapping[str, frozenset[DeviceId]]:
    """One agent's devices in the same NVLink domain, by topology. Cached, because topology rarely
    changes."""
    found: dict[str, set[DeviceId]] = {}
    for device, topology in zip(devices, topologies, strict=True):
        if nvlink_domain := topology.split("|")[1]:
            found.setdefault(nvlink_domain, set()).add(DeviceId(device))
    return {topology: frozenset(found.get(topology.split("|")[1], ())) for topology in topologies}


_NO_PEERS: frozenset[DeviceId] = frozenset()


def running_kernels(
    rows: Iterable[Row], unreadable: UnreadableRows
) -> dict[AgentId, tuple[Running, ...]]:
    """Running kernels by agent, from rows of ``agent_running_kernels.sql``."""
    found: dict[AgentId, list[Running]] = {}
    for agent_id, kernel in unreadable.each("kernel", rows, _running):
        found.setdefault(agent_id, []).append(kernel)
    return {agent: tuple(kernels) for agent, kernels in found.items()}


def _running(row: Row) -> tuple[AgentId, Running]:
    held = zip(row["slots"] or (), row["devices"] or (), row["amounts"] or (), strict=True)
    allocated = row["taken_at"] or row["status_since"]
    stop_s = row["stop_grace_s"] + granted_grace_s(row["checkpoint_s"], row["max_grace_s"])

    return AgentId(row["agent_id"]), Running(
        SessionId(row["session_id"]),
        KernelId(row["id"]),
        tuple(Allocation(slot, DeviceId(device), amount) for slot, device, amount in held),
        ends_at=_ends(row, allocated, timedelta(seconds=stop_s)),
        started_at=_micros(allocated),
        priority=row["priority"],
        user=row["owner"],
        project=row["project"],
        endpoint_id=EndpointId(row["endpoint_id"]) if row["endpoint_id"] else None,
        preemptible=row["preemptible"],
        terminating=row["ending"],
        stop_time=round(stop_s * 1_000_000),
    )


def _ends(row: Row, allocated: datetime, stop: timedelta) -> int | None:
    """The latest time at which the kernel will have ended, including its grace period; None if it
    has no limit. While a kernel is starting, its limit is counted from the placement, so the
    returned time later increases by the duration of the start."""
    if row["ending"]:
        return _micros(row["status_since"] + stop)
    if row["deadline_at"] is not None:
        return _micros(row["deadline_at"] + stop)

    return (
        None
        if row["runs_s"] is None
        else _micros(allocated + timedelta(seconds=row["runs_s"]) + stop)
    )


def agent_states(
    rows: Iterable[Row],
    unreadable: UnreadableRows,
    kernels: Mapping[AgentId, tuple[Running, ...]] | None = None,
) -> tuple[AgentState, ...]:
    """Agents from rows of ``agent_states.sql``. ``kernels``: the running kernels, where they were
    read."""
    running = kernels or {}
    return tuple(
        unreadable.each(
            "agent", rows, lambda row: _agent_state(row, running.get(AgentId(row["id"]), ()))
        )
    )


def _agent_state(row: Row, running: tuple[Running, ...]) -> AgentState:
    free = {}
    capacity = {}
    devices = []
    parts = row["share_quantum"], row["share_minimum"]
    if row["slots"] is not None:
        reported = row["topology"]
        domains = _nvlink_domains(tuple(row["devices"]), tuple(reported)) if reported else {}
        topologies = reported or [""] * len(row["slots"])
        slots = zip(
            row["slots"],
            row["devices"],
            row["offered"],
            row["used"],
            row["healthy"],
            topologies,
            strict=True,
        )
        for slot, device, offered, used, healthy, topology in slots:
            # An agent that has restarted with fewer resources may offer less than is in use.
            available = max(0, offered - used)
            if device:
                peers = domains.get(topology, _NO_PEERS)
                devices.append(
                    _device(device, slot, available, offered, healthy, topology, peers, parts)
                )
            else:
                free[slot] = available
                capacity[slot] = offered

    return AgentState(
        agent_id=AgentId(row["id"]),
        runtimes=frozenset(row["runtimes"]),
        engines=frozenset(row["engines"]),
        free=free,
        capacity=capacity,
        devices=tuple(devices),
        available=row["available"],
        draining=row["draining"],
        dials_out=is_dial_out_host(row["address"]),
        arch=row["arch"],
        labels=dict(row["labels"]),
        max_kernels=row["max_kernels"],
        kernels=len(running) if row["max_kernels"] is None else row["kernels"],
        running=running,
    )
