"""Forecast: when a pending session starts if all sessions ahead of it run until their limits.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from moorage.common.model.ids import AgentId, SessionId
from moorage.manager.scheduling import AgentState, Pending, Place, Policy, Snapshot, plan
from moorage.manager.scheduling.core.model import Running
from moorage.manager.scheduling.placement.selector_plugin import Selector

# Maximum numbers of sessions ahead and of passes. Beyond them there is no forecast, because a
# request is waiting for the answer.
MAX_AHEAD = 100
_MAX_PASSES = 200


def forecast_start(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    session_id: SessionId,
    *,
    ahead: Collection[SessionId],
    selectors: Mapping[str, Selector] | None = None,
) -> int | None:
    """Time at which ``session_id`` is placed after the sessions ``ahead``, in Unix microseconds, or
    None if unknown."""
    if len(ahead) > MAX_AHEAD:
        return None

    policy = replace(policy, preemption=None)
    names = {*ahead, session_id}
    pending = {item.session_id: item for item in snapshot.pending if item.session_id in names}
    agents = {agent.agent_id: agent for agent in snapshot.agents}
    for _ in range(_MAX_PASSES):
        world = replace(
            snapshot,
            agents=tuple(agents.values()),
            pending=tuple(pending.values()),
            usage=None,
            changes=None,
            agent_changes=None,
        )
        for place in plan(world, policy, now, selectors).places:
            if place.session_id == session_id:
                return now
            _start(agents, pending.pop(place.session_id), place, now)

        ends = [
            r.ends_at for agent in agents.values() for r in agent.running if r.ends_at is not None
        ]
        if not ends:
            return None

        now = max(now, min(ends))
        for agent in list(agents.values()):
            ended = [r for r in agent.running if r.ends_at is not None and r.ends_at <= now]
            if ended:
                agents[agent.agent_id] = _changed(agent, ended, 1)

    return None


def _start(agents: dict[AgentId, AgentState], item: Pending, place: Place, now: int) -> None:
    ends_at = None if item.time_limit is None else now + item.time_limit
    for kernel in place.kernels:
        running = Running(
            item.session_id,
            kernel.kernel_id,
            allocations=kernel.allocations,
            ends_at=ends_at,
            started_at=now,
            priority=item.priority,
            user=item.user,
            project=item.project,
            endpoint_id=item.endpoint_id,
        )
        agents[kernel.agent_id] = _changed(agents[kernel.agent_id], [running], -1)


def _changed(agent: AgentState, kernels: Iterable[Running], sign: int) -> AgentState:
    """Free capacity after ``kernels`` end (``sign`` 1) or start (-1)."""
    kernels = list(kernels)
    free = dict(agent.free)
    devices = {device.device_id: device.free for device in agent.devices}
    for kernel in kernels:
        for slot, device_id, amount in kernel.allocations:
            if device_id in devices:
                devices[device_id] += sign * amount
            elif slot in free:
                free[slot] += sign * amount

    ids = {kernel.kernel_id for kernel in kernels}
    stay = tuple(kernel for kernel in agent.running if kernel.kernel_id not in ids)
    return replace(
        agent,
        free=free,
        devices=tuple(replace(device, free=devices[device.device_id]) for device in agent.devices),
        kernels=agent.kernels - sign * len(kernels),
        running=stay if sign == 1 else (*stay, *kernels),
    )
