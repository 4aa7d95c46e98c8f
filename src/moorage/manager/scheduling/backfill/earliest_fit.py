"""Earliest fit: when a node will have enough free for a request, judging by the known end times of
its work, or by assumed end times where none are known.

Work without a time limit is assumed to end when it started; a service (``Running.endless``) never
ends. Assumed end times therefore do not move. Of two nodes whose work has no time limit, the one
whose work started earlier is the earlier fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moorage.common.model.ids import KernelId, SessionId
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import AgentState, Running
from moorage.manager.scheduling.placement.free_capacity import KERNELS, Allocations, FreeCapacity
from moorage.manager.scheduling.placement.node_state import NodeState

# A day in microseconds. Work without a time limit that has run longer than this may not end soon.
LONG_RUN = 86_400_000_000
# Assumed end of work about which an agent reports only the capacity it uses.
_UNKNOWN_END = 2**62
# The assumed fit of a node that already has enough free; it sorts before all others.
FREE = -(2**62)


class Release(NamedTuple):
    """Allocations that become free at ``at`` (Unix microseconds). ``session_id`` is None for those
    planned by this pass."""

    at: int
    allocations: Allocations
    session_id: SessionId | None


def known_releases(node: NodeState, now: int) -> list[Release]:
    """Known releases, sorted by time. Work that is past its expected end may stop at any moment, so
    its release is at ``now``."""
    running = [
        Release(max(r.ends_at, now), r.allocations, r.session_id)
        for r in node.agent.running
        if r.ends_at is not None
    ]
    planned = [
        Release(ends, allocations, None) for ends, allocations in node.planned if ends is not None
    ]
    return sorted(
        running + planned,
        key=lambda release: (release.at, release.session_id or "", release.allocations),
    )


def earliest_fit(
    node: NodeState, demands: tuple[Demand, ...], fraction: str, now: int, *, before: int | None
) -> int | None:
    """Time from which ``demands`` all fit on ``node`` (Unix microseconds, not before ``now``).

    None if that time is unknown, or not earlier than ``before``.
    """
    if node.fits_all(demands, fraction):
        return now

    if len(demands) > 1 or node.planned or KERNELS in node.free:
        return _replay_releases(
            node, demands, fraction=fraction, releases=known_releases(node, now), before=before
        )

    # For one kernel on a node that this pass has not touched, the agent's own timeline suffices.
    (demand,) = demands
    for at, free in _free_timeline(node.agent):
        if before is not None and max(at, now) >= before:
            return None
        if _fits(free, demand):
            return max(at, now)

    return None


def assumed_fit(
    node: NodeState, demands: tuple[Demand, ...], fraction: str, now: int
) -> int | None:
    """Time from which ``demands`` all fit on ``node``, with assumed end times for work whose end is
    unknown. The time is usually in the past; it is None if the demands do not fit before services
    have ended.

    It gets no later while nothing new starts there, even once the node is empty (``FREE``). A
    caller that orders nodes by it therefore keeps the nodes that it has been holding.
    """
    if node.fits_all(demands, fraction):
        return FREE

    if len(demands) > 1 or node.planned or KERNELS in node.free:
        releases = _assumed_releases(node, now)
        at = _replay_releases(node, demands, fraction=fraction, releases=releases, before=None)
        if at is None and node.can_come_free(demands, fraction):
            at = _UNKNOWN_END

        return at

    (demand,) = demands
    for at, free in _assumed_timeline(node):
        if _fits(free, demand):
            return at

    return None


def assumed_key(at: int, rank: int, since: int) -> tuple[bool, int, int]:
    """Sort key for nodes, by ``assumed_fit``. Nodes whose work had been running for very long at
    ``since`` come last, because it may never end.

    ``since`` stays the same while a session waits; otherwise, a held node would lose its place in
    the order once its work had run that long.
    """
    return FREE < at < since - LONG_RUN, at, rank


def _fits(free: Mapping[str, int], demand: Demand) -> bool:
    for slot, amount in demand:  # noqa: SIM110 - frequent
        if free.get(slot, 0) < amount:
            return False
    return True


def _replay_releases(
    node: NodeState,
    demands: tuple[Demand, ...],
    fraction: str,
    releases: list[Release],
    *,
    before: int | None,
) -> int | None:
    capacity: FreeCapacity | None = None
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
    """(time, free amounts) after each known end time, sorted by time. Computed once per agent
    object."""
    if agent.free_timeline is None:
        known = [
            (r.ends_at, r.kernel_id, r.allocations) for r in agent.running if r.ends_at is not None
        ]
        object.__setattr__(agent, "free_timeline", _timeline(agent, known))
    assert agent.free_timeline is not None
    return agent.free_timeline


def _assumed_timeline(node: NodeState) -> list[tuple[int, Mapping[str, int]]]:
    """Like ``_free_timeline``, but with assumed end times. Services keep their resources."""
    agent = node.agent
    if agent.assumed_timeline is None:
        assumed = [
            (_assumed_end(r), r.kernel_id, r.allocations) for r in agent.running if not r.endless
        ]
        timeline = _timeline(agent, assumed)
        timeline.append((_UNKNOWN_END, dict(node.when_emptied().free)))
        object.__setattr__(agent, "assumed_timeline", timeline)

    assert agent.assumed_timeline is not None
    return agent.assumed_timeline


def _timeline(
    agent: AgentState, ends: list[tuple[int, KernelId, Allocations]]
) -> list[tuple[int, Mapping[str, int]]]:
    packed = agent.packed
    capacity = FreeCapacity(packed.free, packed.families, packed.device_families)
    timeline: list[tuple[int, Mapping[str, int]]] = []
    for ends_at, _, allocations in sorted(ends):
        capacity.release(allocations)
        timeline.append((ends_at, dict(capacity.free)))
    return timeline


def _assumed_end(running: Running) -> int:
    return running.started_at if running.ends_at is None else running.ends_at


def _assumed_releases(node: NodeState, now: int) -> list[Release]:
    running = [
        Release(_assumed_end(r), r.allocations, r.session_id)
        for r in node.agent.running
        if not r.endless
    ]
    planned = [
        Release(now if ends is None else ends, allocations, None)
        for ends, allocations in node.planned
    ]
    return sorted(
        running + planned,
        key=lambda release: (release.at, release.session_id or "", release.allocations),
    )


def capacity_at(node: NodeState, at: int, now: int) -> FreeCapacity:
    """Capacity that will be free at ``at`` if nothing new starts."""
    capacity = node.copy()
    for release in known_releases(node, now):
        if release.at <= at:
            capacity.release(release.allocations)
    return capacity


def awaited_sessions(nodes: Iterable[NodeState], until: int, now: int) -> tuple[SessionId, ...]:
    """Running sessions that end by ``until``, earliest end first."""
    ends = sorted(
        (release.at, release.session_id)
        for node in nodes
        for release in known_releases(node, now)
        if release.session_id is not None and release.at <= until
    )
    return tuple(dict.fromkeys(session_id for _, session_id in ends))
