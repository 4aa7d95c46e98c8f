"""When there will be enough: what an agent has free after each known end of what runs on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.demand import Demand, reach
from moorage.manager.scheduling.core.model import AgentState
from moorage.manager.scheduling.placement.free_capacity import KERNELS, FreeCapacity, NodeState, Takes


class End(NamedTuple):
    """Room that comes back at ``at`` (unix microseconds)."""

    at: int
    allocations: Takes
    session_id: SessionId | None


def ends_on(room: NodeState, now: int) -> list[End]:
    """The known ones, the first first. What should have ended and has not is expected any moment."""
    known = [
        End(max(r.ends_at, now), r.allocations, r.session_id)
        for r in room.agent.running
        if r.ends_at is not None
    ]
    booked = [End(ends, takes, None) for ends, takes in room.booked if ends is not None]
    return sorted(known + booked, key=lambda end: (end.at, end.session_id or "", end.allocations))


def earliest_fit(
    room: NodeState, demands: tuple[Demand, ...], fraction: str, now: int, before: int | None
) -> int | None:
    """From when ``demands`` fit together on ``room``, or None: never known, or not before ``before``."""
    if fit_all(room, demands, fraction):
        return now
    if len(demands) > 1 or room.booked or KERNELS in room.free:
        return _step_by_step(room, demands, fraction, now, before)
    (demand,) = demands
    for at, free in _timeline(room.agent):
        if before is not None and max(at, now) >= before:
            return None
        for slot, amount in demand:
            if free.get(slot, 0) < amount:
                break
        else:
            return max(at, now)
    return None


def fit_all(stock: FreeCapacity, demands: tuple[Demand, ...], fraction: str) -> bool:
    if len(demands) == 1:
        return stock.fits(demands[0])
    return stock.fit_together(demands, fraction) is not None


def _step_by_step(
    room: NodeState, demands: tuple[Demand, ...], fraction: str, now: int, before: int | None
) -> int | None:
    stock: FreeCapacity | None = None
    ends = ends_on(room, now)
    for index, end in enumerate(ends):
        if before is not None and end.at >= before:
            return None
        stock = stock or room.copy()
        stock.give(end.allocations)
        last = index + 1 == len(ends) or ends[index + 1].at > end.at
        if last and fit_all(stock, demands, fraction):
            return end.at
    return None


def capacity_at(room: NodeState, at: int, now: int) -> FreeCapacity:
    """What is free at ``at`` if nothing new comes."""
    stock = room.copy()
    for end in ends_on(room, now):
        if end.at <= at:
            stock.give(end.allocations)
    return stock


def capacity_when_empty(room: NodeState, ill: bool = False) -> FreeCapacity:
    """What is free when all that runs there has gone, whenever that is. ``ill``: with the devices that are
    ill and may come back."""
    racks = {
        name: rack._replace(free=tuple([d.capacity if ill or d.healthy else 0 for d in rack.states]))
        for name, rack in room.agent.packed.racks.items()
    }
    stock = FreeCapacity(room.capacity, room.families, racks)
    for name, rack in racks.items():
        stock.own()[name] = reach(rack.free)
    return stock


def _timeline(agent: AgentState) -> list[tuple[int, Mapping[str, int]]]:
    """What is free after each end, kept with the agent: it stays true until the agent changes."""
    if agent.free_timeline is None:
        stock = FreeCapacity(agent.packed.free, agent.packed.families, agent.packed.racks)
        later: list[tuple[int, Mapping[str, int]]] = []
        known = [(r.ends_at, r.kernel_id, r.allocations) for r in agent.running if r.ends_at is not None]
        for ends, _, takes in sorted(known):
            stock.give(takes)
            later.append((ends, dict(stock.free)))
        object.__setattr__(agent, "free_timeline", later)
        return later
    return agent.free_timeline


def awaited_sessions(rooms: Iterable[NodeState], until: int, now: int) -> tuple[SessionId, ...]:
    """The sessions whose end by ``until`` is waited for, the first to end first."""
    ends = sorted(
        (end.at, end.session_id)
        for room in rooms
        for end in ends_on(room, now)
        if end.session_id is not None and end.at <= until
    )
    return tuple(dict.fromkeys(session_id for _, session_id in ends))


def missing(free: Mapping[str, int], demand: Demand) -> int:
    """How far from enough, in 1/1000 of what is asked for, all slots added up. It never grows while room
    comes back and nothing is taken that is short."""
    return sum(
        (asked - free.get(slot, 0)) * 1000 // asked for slot, asked in demand if free.get(slot, 0) < asked
    )
