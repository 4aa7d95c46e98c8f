"""From rows to the values that the rest of the manager knows."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, SessionType, Status
from moorage.common.views import resources
from moorage.manager.lifecycle import KernelSnapshot, SessionSnapshot
from moorage.manager.scheduling import AgentState, DeviceState, Pending
from moorage.manager.scheduling.core.model import Allocation, Running
from moorage.manager.store import cluster_rows

Row = Mapping[str, Any]


def session_view(row: Row, kernels: Iterable[Row], endpoint: str | None) -> resources.SessionView:
    spec = SessionSpec.model_validate(row["spec"])
    return resources.SessionView(
        id=row["id"],
        name=row["name"],
        type=row["type"],
        status=row["status"],
        result=row["result"],
        reason=row["reason"],
        detail=row["detail"],
        resource_group=row["resource_group"],
        priority=row["priority"],
        attempt=row["attempt"],
        revision=row["revision"],
        endpoint=endpoint,
        created_at=row["created_at"],
        status_since=row["status_since"],
        deadline_at=row["deadline_at"],
        user=row["owner"],
        project=row["project"],
        requeues=row["requeues"],
        not_before=row["not_before"],
        slots=row["slots"],
        spec=spec,
        kernels=[kernel_view(k) for k in kernels],
        hold=_hold(row) if row["status"] == Status.PENDING else None,
    )


def _hold(row: Row) -> resources.Hold | None:
    """What the scheduler said last; before it was asked at all, until when nobody asks it."""
    if row["hold"] is not None:
        return resources.Hold(**row["hold"])
    return waits_until(row["not_before"], row["starts_at"], row["status_since"])


def waits_until(
    not_before: datetime | None, starts_at: datetime | None, since: datetime
) -> resources.Hold | None:
    """The hold of a session for which the scheduler is not asked yet."""
    reason, until = Reason.BACKOFF if not_before else Reason.BEGIN_TIME, not_before or starts_at
    if until is None:
        return None
    words = f"{REASONS[reason].text}: not before {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return resources.Hold(reason=reason, text=words, attempts=0, at=since)


def as_id(ref: str) -> str | None:
    """A session's id, where ``ref`` is one; its name otherwise."""
    try:
        return str(uuid.UUID(ref)) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", ref) else None
    except ValueError:
        return None


def kernel_view(row: Row) -> resources.KernelView:
    return resources.KernelView(
        id=row["id"],
        role=row["cluster_role"],
        index=row["cluster_index"],
        hostname=row["hostname"],
        attempt=row["attempt"],
        status=row["status"],
        agent_id=row["agent_id"],
        observed=ObservedState(row["observed"]) if row["observed"] else None,
        host=row["host"],
        port=row["port"],
        exit_code=row["exit_code"],
        reason=row["reason"],
        detail=row["detail"],
        log_tail=row["log_tail"],
        devices=[resources.DeviceView(**d) for d in row["devices"]],
        status_since=row["status_since"],
    )


@lru_cache(maxsize=1024)
def _spec(text: str) -> SessionSpec:
    """Sessions that come in numbers mostly ask for the same."""
    return SessionSpec.model_validate_json(text)


def session_facts(rows: Iterable[Row]) -> list[SessionSnapshot]:
    """From rows joined session × kernel, ordered by session."""
    found = []
    for _, group in groupby(rows, key=lambda r: r["id"]):
        members = list(group)
        row = members[0]
        kernels = tuple(
            KernelSnapshot(
                KernelId(m["kernel_id"]),
                Status(m["kernel_status"]),
                Reason(m["kernel_reason"]),
                m["kernel_detail"],
                m["exit_code"],
                AgentId(m["agent_id"]) if m["agent_id"] else None,
                m["hostname"],
            )
            for m in members
        )
        found.append(
            SessionSnapshot(
                SessionId(row["id"]),
                Status(row["status"]),
                row["revision"],
                row["attempt"],
                _spec(row["spec"]),
                kernels,
                Reason(row["reason"]),
                row["detail"],
                row["deadline_at"],
                row["other_agents"],
                row["untried_agents"],
                row["requeues"],
                row["requeued_from"],
                row["broken"] or "",
            )
        )
    return found


def kernel_spec(row: Row) -> KernelSpec:
    """What an agent is told, from a row of ``agent_orders.sql``."""
    asked = _spec(row["spec"])
    main = row["cluster_role"] == "main"
    spec = asked if main else cluster_rows.as_sub(asked)
    probe = spec.probe
    return KernelSpec(
        kernel_id=KernelId(row["id"]),
        session_id=SessionId(row["session_id"]),
        session_name=row["name"],
        session_type=SessionType(row["type"]),
        runtime=spec.runtime,
        engine=spec.engine,
        served_name=row["endpoint_name"] or row["name"],
        image=spec.image or "",
        container_user=row["container_user"] or "",
        workspace=spec.workspace or "",
        ports=tuple(port.declared() for port in spec.ports) if main else (),
        model=spec.model or "",
        args=tuple(spec.args),
        command=tuple(spec.command),
        env=dict(spec.env),
        probe_path=probe.path if probe else "",
        probe_period_s=probe.period_s if probe else 0.5,
        slots=cluster_rows.main_slots(asked) if main else cluster_rows.sub_slots(asked),
        devices=tuple(DeviceGrant(slot, DeviceId(device), amount) for slot, device, amount in row["devices"]),
        secret=row["secret"],
        start_timeout_s=spec.start_timeout_s,
        stop_grace_s=spec.stop_grace_s,
        endpoint_id=EndpointId(row["endpoint_id"]) if row["endpoint_id"] else None,
        cluster=cluster_rows.membership(row, asked),
    )


def _micros(at: datetime) -> int:
    """Unix microseconds, as the planner counts."""
    return round(at.timestamp() * 1_000_000)


def pending(row: Row) -> Pending:
    """Its pause and its start time are over, else it would not be here."""
    waits = row["waits_on"] or ()
    failed = tuple(SessionId(other) for other, state in waits if state == "failed")
    cluster = _spec(row["cluster_spec"]) if row["cluster_spec"] else None
    return Pending(
        session_id=SessionId(row["id"]),
        kernel_id=KernelId(row["kernel_id"]),
        revision=row["revision"],
        priority=row["priority"],
        created=_micros(row["created_at"]),
        retries=row["retries"],
        runtime=row["runtime"],
        engine=row["engine"],
        slots=cluster_rows.main_slots(cluster) if cluster else row["slots"],
        sub_kernels=cluster_rows.asks(cluster, row["subs"]) if cluster else (),
        mode=cluster.cluster.mode if cluster and cluster.cluster else "single-node",
        avoid=frozenset(AgentId(a) for a in row["avoid"]),
        user=row["owner"],
        project=row["project"],
        session_type=row["type"],
        arch=row["arch"] or "",
        labels=row["labels"] or {},
        designated=frozenset(AgentId(a) for a in row["agents"] or ()),
        # How long its start takes is not known, and it is short beside what it waits for.
        time_limit=None if row["runs_s"] is None else round((row["runs_s"] + row["stop_s"]) * 1_000_000),
        dependencies="failed" if failed else "unmet" if waits else "met",
        waits_on=failed or tuple(SessionId(other) for other, _ in waits),
        endpoint_id=EndpointId(row["endpoint_id"]) if row["endpoint_id"] else None,
        bypassed=row["bypassed"],
        waiting_since=_micros(row["status_since"]),
    )


@lru_cache(maxsize=65_536)
def _device(
    device: str,
    slot: str,
    free: int,
    capacity: int,
    healthy: bool,
    near: str,
    peers: frozenset[DeviceId],
    parts: tuple[int, int],
) -> DeviceState:
    """Of the devices of a thousand agents, most are as they were: whole and free, or given away.

    ``near``: ``numa|nvlink_domain|parent``, "" where its agent does not tell. ``parts``: quantum and minimum.
    """
    numa, _, parent = near.split("|") if near else ("", "", "")
    quantum, minimum = (WHOLE_DEVICE, 1) if parent else parts  # a slice is given whole
    return DeviceState(
        DeviceId(device),
        slot,
        free,
        capacity,
        healthy,
        numa=int(numa) if numa else None,
        peers=peers - {DeviceId(device)},
        parent=DeviceId(parent),
        quantum=quantum,
        minimum=minimum,
    )


@lru_cache(maxsize=65_536)
def _islands(devices: tuple[str, ...], near: tuple[str, ...]) -> Mapping[str, frozenset[DeviceId]]:
    """By ``near``: the devices of one agent that reach each other. It changes when somebody opens it."""
    found: dict[str, set[DeviceId]] = {}
    for device, where in zip(devices, near, strict=True):
        if nvlink_domain := where.split("|")[1]:
            found.setdefault(nvlink_domain, set()).add(DeviceId(device))
    return {where: frozenset(found.get(where.split("|")[1], ())) for where in near}


_ALONE: frozenset[DeviceId] = frozenset()


def running(rows: Iterable[Row]) -> dict[AgentId, tuple[Running, ...]]:
    """From rows of ``agent_running.sql``: what runs, by agent."""
    found: dict[AgentId, list[Running]] = {}
    for row in rows:
        held = zip(row["slots"] or (), row["devices"] or (), row["amounts"] or (), strict=True)
        taken = row["taken_at"] or row["status_since"]
        found.setdefault(AgentId(row["agent_id"]), []).append(
            Running(
                SessionId(row["session_id"]),
                KernelId(row["id"]),
                tuple(Allocation(slot, DeviceId(device), amount) for slot, device, amount in held),
                ends_at=_ends(row, taken),
                started_at=_micros(taken),
                priority=row["priority"],
                user=row["owner"],
                project=row["project"],
                endpoint_id=EndpointId(row["endpoint_id"]) if row["endpoint_id"] else None,
                preemptible=row["preemptible"],
                terminating=row["ending"],
            )
        )
    return {agent: tuple(kernels) for agent, kernels in found.items()}


def _ends(row: Row, taken: datetime) -> int | None:
    """By when a kernel is gone, its polite stop included; None: nobody knows. That of one which is starting
    is reckoned from its placement: it moves on by what the start takes."""
    stop = timedelta(seconds=row["stop_s"])
    if row["ending"]:
        return _micros(row["status_since"] + stop)
    if row["deadline_at"] is not None:
        return _micros(row["deadline_at"] + stop)
    return None if row["runs_s"] is None else _micros(taken + timedelta(seconds=row["runs_s"]) + stop)


def agent_states(
    rows: Iterable[Row], kernels: Mapping[AgentId, tuple[Running, ...]] | None = None
) -> tuple[AgentState, ...]:
    """From rows of ``agent_states.sql``, with what runs there where that is known."""
    kernels = kernels or {}
    found = []
    for row in rows:
        free, capacity, devices = {}, {}, []
        parts = row["share_quantum"], row["share_minimum"]
        known = kernels.get(AgentId(row["id"]), ())
        if row["slots"] is not None:
            near = row["near"]
            islands = _islands(tuple(row["devices"]), tuple(near)) if near else {}
            places = near or [""] * len(row["slots"])
            slots = zip(
                row["slots"], row["devices"], row["offered"], row["used"], row["healthy"], places, strict=True
            )
            for slot, device, offered, used, healthy, where in slots:
                # An agent that came back smaller may offer less than is in use: nothing is free then.
                left = max(0, offered - used)
                if device:
                    peers = islands.get(where, _ALONE)
                    devices.append(_device(device, slot, left, offered, healthy, where, peers, parts))
                else:
                    free[slot], capacity[slot] = left, offered
        found.append(
            AgentState(
                agent_id=AgentId(row["id"]),
                runtimes=frozenset(row["runtimes"]),
                engines=frozenset(row["engines"]),
                free=free,
                capacity=capacity,
                devices=tuple(devices),
                available=row["available"],
                draining=row["draining"],
                arch=row["arch"],
                labels=row["labels"],
                max_kernels=row["max_kernels"],
                kernels=len(known) if row["max_kernels"] is None else row["kernels"],
                running=known,
            )
        )
    return tuple(found)


def replica_view(row: Row) -> resources.ReplicaView:
    return resources.ReplicaView(
        session_id=row["id"],
        name=row["name"],
        status=row["status"],
        reason=row["reason"],
        detail=row["detail"] or row["kernel_detail"] or REASONS[Reason(row["reason"])].text,
        agent_id=row["agent_id"],
        status_since=row["status_since"],
        log_tail=row["log_tail"] or "",
    )


def agent_view(row: Row) -> resources.AgentView:
    return resources.AgentView(
        id=row["id"],
        status=row["status"],
        resource_group=row["resource_group"],
        address=row["address"],
        version=row["version"],
        arch=row["arch"],
        runtimes=row["runtimes"],
        engines=row["engines"],
        labels=row["labels"],
        draining=row["draining"],
        cordon=row["cordon"],
        cordoned_by=row["cordoned_by"],
        cordoned_at=row["cordoned_at"],
        stop_at=row["stop_at"],
        connected_since=row["connected_at"],
        last_seen=row["last_seen"],
        offers=[resources.OfferView(**offer) for offer in row["offers"]],
        kernels=row["kernels"],
        max_kernels=row["max_kernels"],
    )
