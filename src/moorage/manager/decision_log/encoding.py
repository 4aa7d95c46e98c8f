"""JSON encoding and decoding of the parts of a snapshot.

Most pending sessions differ only in their ids and times, and agents differ between passes only in
their free amounts. The rest is a template, which is written once and then referred to by number.
The stored names of the templates are ``kinds`` (sessions) and ``makes`` (agents).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from moorage.common.model.ids import AgentId, DeviceId, EndpointId, KernelId, SessionId
from moorage.manager.scheduling import AgentState, DeviceState, Pending, Policy
from moorage.manager.scheduling.core.model import Allocation, KernelRequest, Quota, Running
from moorage.manager.scheduling.core.policy import Preemption

Key = tuple[Any, ...]
Json = dict[str, Any]
# Fields of a session template that are stored under their own names.
_TEMPLATE_FIELDS = (
    "user",
    "slots",
    "priority",
    "project",
    "session_type",
    "runtime",
    "engine",
    "endpoint_id",
    "arch",
    "mode",
    "labels",
)


def session_template_key(item: Pending) -> Key:
    """A key that is the same for sessions with equal templates."""
    return (
        item.user,
        tuple(item.slots.items()),
        item.time_limit,
        item.priority,
        item.project,
        item.session_type,
        item.runtime,
        item.engine,
        item.endpoint_id,
        item.arch,
        item.mode,
        tuple(item.labels.items()) if item.labels else (),
        item.designated,
        tuple(tuple(kernel.slots.items()) for kernel in item.sub_kernels)
        if item.sub_kernels
        else (),
    )


def session_template(item: Pending) -> Json:
    return {
        "user": item.user,
        "slots": dict(item.slots),
        "runs_for": item.time_limit,
        "priority": item.priority,
        "project": item.project,
        "session_type": item.session_type,
        "runtime": item.runtime,
        "engine": item.engine,
        "endpoint_id": item.endpoint_id,
        "arch": item.arch,
        "mode": item.mode,
        "labels": dict(item.labels),
        "designated": sorted(item.designated),
        "others": [dict(kernel.slots) for kernel in item.sub_kernels],
    }


def session_extras(item: Pending) -> Json:
    """Fields that are neither in the template nor in the row, if they differ from their
    defaults."""
    found: Json = {}
    if item.retries:
        found["retries"] = item.retries
    if item.bypassed:
        found["bypassed"] = item.bypassed
    if item.dependencies != "met":
        found["dependencies"] = item.dependencies
    if item.waits_on:
        found["waits_on"] = item.waits_on
    if item.earlier_agents:
        found["earlier_agents"] = item.earlier_agents
    if item.avoid:
        found["avoid"] = sorted(item.avoid)
    if item.sub_kernels:
        found["kernels"] = [kernel.kernel_id for kernel in item.sub_kernels]
    if item.not_before is not None:
        found["not_before"] = item.not_before
    if item.starts_at is not None:
        found["starts_at"] = item.starts_at
    if item.node_seconds:
        found["node_seconds"] = item.node_seconds
    if item.qos:
        found["qos"] = item.qos

    return found


def decode_pending(row: list[Any], template: Json, base: int) -> Pending:
    """Decode a pending session. ``row``: as ``Writer`` encodes it, with times relative to
    ``base``."""
    session_id, kernel_id, _, revision, created, since, *extras = row
    given: Json = dict(extras[0]) if extras else {}
    sub_kernels = zip(given.pop("kernels", ()), template["others"], strict=True)
    of_template = {name: template[name] for name in _TEMPLATE_FIELDS}

    return Pending(
        session_id=SessionId(session_id),
        kernel_id=KernelId(kernel_id),
        revision=revision,
        created=base + created,
        waiting_since=0 if since is None else base + created + since,
        retries=given.pop("retries", 0),
        avoid=frozenset(AgentId(agent) for agent in given.pop("avoid", ())),
        waits_on=tuple(SessionId(other) for other in given.pop("waits_on", ())),
        earlier_agents=tuple(AgentId(agent) for agent in given.pop("earlier_agents", ())),
        designated=frozenset(AgentId(agent) for agent in template["designated"]),
        time_limit=template["runs_for"],
        sub_kernels=tuple(KernelRequest(KernelId(kernel), slots) for kernel, slots in sub_kernels),
        **of_template,
        **given,
    )


def changed_free_devices(old: AgentState, new: AgentState) -> list[int] | None:
    """The index and free amount, alternating, of each device whose free amount changed.

    None means that the agents differ in more than free amounts and running work, so they need
    different templates.
    """
    if (
        old.capacity != new.capacity
        or old.available != new.available
        or old.draining != new.draining
        or (old.fenced, old.dials_out) != (new.fenced, new.dials_out)
        or old.runtimes != new.runtimes
        or old.engines != new.engines
        or (old.arch, old.labels, old.max_kernels) != (new.arch, new.labels, new.max_kernels)
        or old.free.keys() != new.free.keys()
        or len(old.devices) != len(new.devices)
    ):
        return None

    found: list[int] = []
    for number, device in enumerate(new.devices):
        before = old.devices[number]
        if before is device:
            continue

        if (
            before.device_id != device.device_id
            or before.healthy != device.healthy
            or before.capacity != device.capacity
            or before.slot != device.slot
            or (before.numa, before.peers, before.parent)
            != (device.numa, device.peers, device.parent)
            or (before.quantum, before.minimum) != (device.quantum, device.minimum)
        ):
            return None

        found += (number, device.free)

    return found


def _device(device: DeviceState) -> list[Any]:
    return [
        device.device_id,
        device.slot,
        device.free,
        device.capacity,
        device.healthy,
        device.numa,
        sorted(device.peers),
        device.parent,
        device.quantum,
        device.minimum,
    ]


def agent_template(agent: AgentState) -> Json:
    return {
        "agent_id": agent.agent_id,
        "runtimes": sorted(agent.runtimes),
        "engines": sorted(agent.engines),
        "free": list(agent.free),
        "capacity": dict(agent.capacity),
        "devices": [_device(device) for device in agent.devices],
        "available": agent.available,
        "draining": agent.draining,
        "fenced": agent.fenced,
        **({"dials_out": True} if agent.dials_out else {}),
        "arch": agent.arch,
        "labels": dict(agent.labels),
        "max_kernels": agent.max_kernels,
    }


def decode_agent(
    template: Json,
    free: list[int],
    devices: tuple[DeviceState, ...],
    kernels: int,
    *,
    running: tuple[Running, ...],
) -> AgentState:
    return AgentState(
        agent_id=AgentId(template["agent_id"]),
        runtimes=frozenset(template["runtimes"]),
        engines=frozenset(template["engines"]),
        free=dict(zip(template["free"], free, strict=True)),
        capacity=template["capacity"],
        devices=devices,
        available=template["available"],
        draining=template["draining"],
        fenced=template["fenced"],
        dials_out=template.get("dials_out", False),
        arch=template["arch"],
        labels=template["labels"],
        max_kernels=template["max_kernels"],
        kernels=kernels,
        running=running,
    )


def decode_devices(template: Json) -> tuple[DeviceState, ...]:
    """Decode the devices as they were when the template was written."""
    return tuple(
        DeviceState(
            DeviceId(name),
            slot,
            free,
            capacity,
            healthy,
            numa,
            frozenset(peers),
            parent,
            *fractions,
        )
        for name, slot, free, capacity, healthy, numa, peers, parent, *fractions in template[
            "devices"
        ]
    )


def apply_free_devices(
    known: tuple[DeviceState, ...], changes: list[int]
) -> tuple[DeviceState, ...]:
    """Apply ``changes``, the result of ``changed_free_devices``."""
    if not changes:
        return known
    found = list(known)
    for number, free in zip(changes[::2], changes[1::2], strict=True):
        found[number] = replace(found[number], free=free)
    return tuple(found)


def decode_allocations(rows: list[list[Any]]) -> tuple[Allocation, ...]:
    return tuple(Allocation(slot, DeviceId(device), amount) for slot, device, amount in rows)


def decode_running(
    row: list[Any], held: tuple[Allocation, ...], owner: list[Any], base: int
) -> Running:
    """Decode a running kernel. ``row``: kernel, session, allocations, owner, start, end, whether it
    is terminating. ``owner``: includes its kernels' stop time."""
    kernel_id, session_id, _, _, started_at, ends_at, terminating = row
    priority, user, project, endpoint, preemptible, stop_time = owner
    return Running(
        SessionId(session_id),
        KernelId(kernel_id),
        allocations=held,
        ends_at=None if ends_at is None else base + ends_at,
        started_at=base + started_at,
        priority=priority,
        user=user,
        project=project,
        endpoint_id=None if endpoint is None else EndpointId(endpoint),
        preemptible=preemptible,
        terminating=terminating,
        stop_time=stop_time,
    )


def encode_policy(policy: Policy) -> Json:
    found = asdict(policy)
    found["session_types"] = None if policy.session_types is None else sorted(policy.session_types)
    found["exclusive"] = [sorted(families) for families in policy.exclusive]
    if policy.preemption is not None and policy.preemption.among == "all":
        del found["preemption"]["among"]  # as in the previous release
    return found


def decode_policy(encoded: Json) -> Policy:
    given = dict(encoded)
    types = given["session_types"]
    preemption = given["preemption"]
    given["session_types"] = None if types is None else frozenset(types)
    given["exclusive"] = tuple(frozenset(families) for families in given["exclusive"])
    given["slot_priority"] = tuple(given["slot_priority"])
    given["preemption"] = None if preemption is None else Preemption(**preemption)
    return Policy(**given)


def encode_quota(quota: Quota) -> list[Any]:
    return [
        quota.scope,
        quota.name,
        dict(quota.limits),
        dict(quota.used),
        quota.sessions,
        quota.running,
    ]


def encode_elsewhere(quota: Quota) -> list[Any]:
    """Encode a separate line, which older readers skip."""
    return [dict(quota.used_elsewhere), quota.running_elsewhere]


def encode_node_hours(quota: Quota) -> list[Any]:
    """Encode a separate line, which older readers skip."""
    return [quota.node_seconds, quota.node_seconds_used, quota.month_ends]


def decode_quota(
    encoded: Sequence[Any], elsewhere: Sequence[Any], node_hours: Sequence[Any]
) -> Quota:
    return replace(
        Quota(*encoded, *elsewhere),
        **dict(zip(("node_seconds", "node_seconds_used", "month_ends"), node_hours, strict=False)),
    )


def encode_usage(usage: Mapping[str, Mapping[str, int]]) -> Json:
    return {owner: dict(held) for owner, held in usage.items()}
