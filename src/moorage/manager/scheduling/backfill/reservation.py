"""Where and from when there will be room for a session that is blocked."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from moorage.common.model.ids import AgentId
from moorage.manager.scheduling.backfill.earliest_fit import (
    awaited_sessions,
    capacity_at,
    capacity_when_empty,
    earliest_fit,
    fit_all,
    missing,
)
from moorage.manager.scheduling.backfill.earliest_fit_index import Forecasts
from moorage.manager.scheduling.backfill.reservation_guard import ReservationGuard
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.policy import Policy
from moorage.manager.scheduling.core.results import Reservation
from moorage.manager.scheduling.placement.feasible_set import wanted
from moorage.manager.scheduling.placement.free_capacity import NodeState
from moorage.manager.scheduling.placement.node_pool import NodePool

Found = tuple[Reservation, list[ReservationGuard]]


class Reserver:
    """For one blocked session: first by the known ends of what runs, else by holding what is nearest."""

    _rooms: list[NodeState] | None = None

    def __init__(
        self, bench: NodePool, item: Pending, policy: Policy, now: int, forecasts: Forecasts | None
    ) -> None:
        self._forecasts = forecasts if item.unconstrained and item.shape.alone and not bench.grained else None
        self._bench, self._item, self._now, self._fraction = bench, item, now, policy.fraction
        demands = tuple(bench.demand(demand) for demand in item.shape.demands)
        # What each agent of the reservation must hold: all kernels, or one.
        single = item.shape.mode == "single-node"
        self._parts: list[tuple[Demand, ...]] = [demands] if single else [(demand,) for demand in demands]

    def _able(self) -> list[NodeState]:
        """Those that it would go to."""
        if self._rooms is None:
            grained, item = self._bench.grained, self._item
            rooms = [r for r in self._bench.crowd(item.shape.constraints).open_to if not r.guarded]
            choosy = grained or not item.unconstrained
            self._rooms = [r for r in rooms if wanted(item, r, grained)] if choosy else rooms
        return self._rooms

    def by_ends(self) -> Found | None:
        """At the earliest time that is known, on the agents where that is."""
        found: dict[int, tuple[int, NodeState]] = {}
        for index in self._largest_first():
            best = self._first(self._parts[index], {room.rank for _, room in found.values()})
            if best is None:
                return None
            found[index] = best
        starts = max(at for at, _ in found.values())
        rooms = [found[index][1] for index in range(len(found))]
        waits_for = awaited_sessions(rooms, starts, self._now)
        reservation = Reservation(self._item.session_id, _ids(rooms), starts, "ends", waits_for)
        guards = [
            self._guard(room, starts, demands) for room, demands in zip(rooms, self._parts, strict=True)
        ]
        return reservation, guards

    def _first(self, demands: tuple[Demand, ...], taken: set[int]) -> tuple[int, NodeState] | None:
        if self._forecasts is not None:
            return self._forecasts.first(self._bench, self._item.shape, self._now)
        best: tuple[int, NodeState] | None = None
        alone = self._item.shape.alone
        for room in self._able():
            later = room.agent.free_timeline
            # One kernel fits nowhere now, and so on none of these before the first end there.
            if (
                alone
                and best is not None
                and later is not None
                and not room.booked
                and (not later or later[0][0] >= best[0])
            ):
                continue
            if room.rank in taken or not all(room.could_ever_fit(demand) for demand in demands):
                continue
            at = earliest_fit(room, demands, self._fraction, self._now, best[0] if best else None)
            if at is not None and (best is None or at < best[0]):
                best = at, room
                if at == self._now:
                    break
        return best

    def by_holding(self) -> Found | None:
        """Nobody knows when. What lacks least is kept until it lacks nothing; it can only come nearer."""
        found: dict[int, NodeState] = {}
        for index in self._largest_first():
            demands, taken = self._parts[index], {room.rank for room in found.values()}
            lacking = sorted(
                (sum(missing(room.free, demand) for demand in demands), room.rank)
                for room in self._able()
                if room.rank not in taken and all(room.could_ever_fit(demand) for demand in demands)
            )
            rooms = (self._bench.rooms[rank] for _, rank in lacking)
            able = (room for room in rooms if fit_all(capacity_when_empty(room), demands, self._fraction))
            room = next(able, None)
            if room is None:
                return None
            found[index] = room
        kept = [found[index] for index in range(len(found))]
        reservation = Reservation(self._item.session_id, _ids(kept), None, "held")
        guards = [self._guard(room, None, demands) for room, demands in zip(kept, self._parts, strict=True)]
        return reservation, guards

    def _largest_first(self) -> list[int]:
        return sorted(range(len(self._parts)), key=lambda index: (self._parts[index], -index), reverse=True)

    def _guard(self, room: NodeState, starts: int | None, demands: tuple[Demand, ...]) -> ReservationGuard:
        stock = room.copy if starts is None else partial(capacity_at, room, starts, self._now)
        return ReservationGuard(self._item.session_id, room, starts, demands, stock, self._fraction)


def _ids(rooms: Iterable[NodeState]) -> tuple[AgentId, ...]:
    return tuple(room.agent.agent_id for room in rooms)


def reserve(
    bench: NodePool,
    item: Pending,
    policy: Policy,
    now: int,
    overdue: bool,
    forecasts: Forecasts | None = None,
) -> Found | None:
    """A reservation for ``item``, which fits nowhere now, or None when no end is known and nobody must hold
    anything for it yet (``overdue``). ``forecasts``: what an earlier pass found out."""
    reserver = Reserver(bench, item, policy, now, forecasts)
    return reserver.by_ends() or (reserver.by_holding() if overdue else None)
