"""Earliest fit: when a node has enough free for a request, by the known ends of what runs on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import AgentState
from moorage.manager.scheduling.placement.free_capacity import KERNELS, Allocations, FreeCapacity
from moorage.manager.scheduling.placement.node_state import NodeState


class Release(NamedTuple):
    """Allocations that become free at ``at`` (unix microseconds). ``session_id`` is None for those that this
    pass has planned."""

    at: int
    allocations: Allocations
    session_id: SessionId | None


def known_releases(node: NodeState, now: int) -> list[Release]:
    """Sorted by time. Work that is past its end is expected to end at any moment, so at ``now``."""
    running = [
        Release(max(r.ends_at, now), r.allocations, r.session_id)
        for r in node.agent.running
        if r.ends_at is not None
    ]
    planned = [Release(ends, allocations, None) for ends, allocations in node.planned if ends is not None]
    return sorted(
        running + planned, key=lambda release: (release.at, release.session_id or "", release.allocations)
    )


def earliest_fit(
    node: NodeState, demands: tuple[Demand, ...], fraction: str, now: int, before: int | None
) -> int | None:
    """From when ``demands`` fit on ``node`` at once (unix microseconds, not before ``now``).

    None: unknown, or not earlier than ``before``.
    """
    if node.fits_all(demands, fraction):
        return now
    if len(demands) > 1 or node.planned or KERNELS in node.free:
        return _replay_releases(node, demands, fraction, now, before)
    # One kernel on a node that this pass has not touched: the agent's own timeline answers.
    (demand,) = demands
    for at, free in _free_timeline(node.agent):
        if before is not None and max(at, now) >= before:
            return None
        for slot, amount in demand:
            if free.get(slot, 0) < amount:
                break
        else:
            return max(at, now)
    return None


def _replay_releases(
    node: NodeState, demands: tuple[Demand, ...], fraction: str, now: int, before: int | None
) -> int | None:
    capacity: FreeCapacity | None = None
    releases = known_releases(node, now)
    for index, release in enumerate(releases):
        if before is not None and release.at >= before:
            return None
        capacity = capacity or node.copy()
        capacity.release(release.allocations)
        last_of_its_time = index + 1 == len(releases) or releases[index + 1].at > release.at
        if last_of_its_time and capacity.fits_all(demands, fraction):
            return release.at
    return None


def _free_timeline(agent: AgentState) -> list[tuple[int, Mapping[str, int]]]:
    """(time, free amounts) after each known end, sorted by time. Computed once per agent object."""
    if agent.free_timeline is None:
        packed = agent.packed
        capacity = FreeCapacity(packed.free, packed.families, packed.device_families)
        timeline: list[tuple[int, Mapping[str, int]]] = []
        known = [(r.ends_at, r.kernel_id, r.allocations) for r in agent.running if r.ends_at is not None]
        for ends_at, _, allocations in sorted(known):
            capacity.release(allocations)
            timeline.append((ends_at, dict(capacity.free)))
        object.__setattr__(agent, "free_timeline", timeline)
        return timeline
    return agent.free_timeline


def capacity_at(node: NodeState, at: int, now: int) -> FreeCapacity:
    """What is free at ``at`` if nothing new starts."""
    capacity = node.copy()
    for release in known_releases(node, now):
        if release.at <= at:
            capacity.release(release.allocations)
    return capacity


def awaited_sessions(nodes: Iterable[NodeState], until: int, now: int) -> tuple[SessionId, ...]:
    """The running sessions that end by ``until``, earliest end first."""
    ends = sorted(
        (release.at, release.session_id)
        for node in nodes
        for release in known_releases(node, now)
        if release.session_id is not None and release.at <= until
    )
    return tuple(dict.fromkeys(session_id for _, session_id in ends))


def shortfall(free: Mapping[str, int], demand: Demand) -> int:
    """What is missing for ``demand``, in 1/1000 of each requested amount, summed over all slots.

    It never grows while capacity is released and nothing is taken of the slots that are short.
    """
    return sum(
        (amount - free.get(slot, 0)) * 1000 // amount for slot, amount in demand if free.get(slot, 0) < amount
    )
