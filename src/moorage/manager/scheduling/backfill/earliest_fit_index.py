"""When each agent will have room for a shape, kept for as long as the agent is as it was."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from moorage.manager.scheduling.backfill.earliest_fit import earliest_fit
from moorage.manager.scheduling.core.demand import Demand
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS, NodeState
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.placement.resource_request import ResourceRequest


class _Table:
    """``row``: (from when, agent) in order; ``at``: the same by agent. ``seen``: how far in the log."""

    __slots__ = ("at", "row", "seen")

    def __init__(self, at: dict[int, int], seen: int) -> None:
        self.at, self.seen = at, seen
        self.row = sorted((when, rank) for rank, when in at.items())

    def put(self, rank: int, when: int | None) -> None:
        old = self.at.pop(rank, None)
        if old is not None:
            del self.row[bisect_left(self.row, (old, rank))]
        if when is not None:
            self.at[rank] = when
            insort(self.row, (when, rank))


# So many agents are asked one by one, the first to have anything end first, before a table is made of all.
_FEW = 64
# When the log has so many changes for each agent, tables are made anew.
_LOGGED = 8


class Forecasts:
    """For sessions of one kernel that any agent of their kind will do, and that fit nowhere now."""

    def __init__(self, fraction: str, rooms: list[NodeState]) -> None:
        self._fraction, self._rooms = fraction, rooms
        self._tables: dict[Shape, _Table] = {}
        self._log: list[int] = []  # ranks of agents, each time that one changed
        # When the first of what runs on each ends: what does not fit there now does not fit before.
        self._first_of = [_first_end(room) for room in rooms]
        self._firsts = sorted((end, rank) for rank, end in enumerate(self._first_of) if end is not None)

    def changed(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            old, new = self._first_of[rank], _first_end(self._rooms[rank])
            if old != new:
                self._first_of[rank] = new
                if old is not None:
                    del self._firsts[bisect_left(self._firsts, (old, rank))]
                if new is not None:
                    insort(self._firsts, (new, rank))
            if self._tables:
                self._log.append(rank)
        if len(self._log) > _LOGGED * len(self._rooms):
            self._tables.clear()
            self._log.clear()

    def first(self, bench: NodePool, shape: Shape, now: int) -> tuple[int, NodeState] | None:
        """The earliest time (unix microseconds, not before ``now``) and the agent, the first of equals; what
        this pass has booked is counted. None: never known."""
        want = bench.want(shape)
        busy = {room.rank for room in bench.booked}
        table = self._tables.get(shape)
        known, best = (False, None) if table is not None else self._among_few(want, busy, now)
        if not known:
            best = self._by_table(bench, shape, want, busy, now)
        for room in bench.booked:
            if room.rank not in want.ranks or not room.could_ever_fit(want.demand):
                continue
            ends = [end for end, _ in room.booked if end is not None]
            first = min([self._first_of[room.rank] or now, *ends], default=now)
            if best is not None and max(first, now) > best[0] and not room.fits(want.demand):
                continue
            at = earliest_fit(room, (want.demand,), self._fraction, now, None)
            if at is not None and (best is None or (at, room.rank) < best):
                best = at, room.rank
        return None if best is None else (best[0], bench.rooms[best[1]])

    def _among_few(
        self, want: ResourceRequest, busy: set[int], now: int
    ) -> tuple[bool, tuple[int, int] | None]:
        """Whether the answer was found soon, and which it is."""
        best: tuple[int, int] | None = None
        for asked, (first, rank) in enumerate(self._firsts):
            if best is not None and first > best[0]:
                break
            if asked == _FEW:
                return False, None
            if rank in want.ranks and rank not in busy:
                when = self._when(self._rooms[rank], want.demand)
                if when is not None and (best is None or (max(when, now), rank) < best):
                    best = max(when, now), rank
        return True, best

    def _by_table(
        self, bench: NodePool, shape: Shape, want: ResourceRequest, busy: set[int], now: int
    ) -> tuple[int, int] | None:
        table = self._table(shape, want)
        come = bisect_right(table.row, (now, len(self._rooms)))
        ranks = [rank for _, rank in table.row[:come] if rank not in busy]
        if ranks:
            return now, min(ranks)
        return next((entry for entry in table.row[come:] if entry[1] not in busy), None)

    def _table(self, shape: Shape, want: ResourceRequest) -> _Table:
        table, demand = self._tables.get(shape), want.demand
        if table is None:
            found = {rank: self._when(self._rooms[rank], demand) for rank in want.ranks}
            known = {rank: when for rank, when in found.items() if when is not None}
            table = self._tables[shape] = _Table(known, len(self._log))
        elif table.seen < len(self._log):
            for rank in set(self._log[table.seen :]) & want.ranks:
                table.put(rank, self._when(self._rooms[rank], demand))
            table.seen = len(self._log)
        return table

    def _when(self, room: NodeState, demand: Demand) -> int | None:
        """By what was there before this pass. Ends that have passed stay as they are: 0 is the earliest."""
        if not room.could_ever_fit(demand):
            return None
        asked = NodeState(room.agent, room.rank, KERNELS in room.free) if room.booked else room
        return earliest_fit(asked, (demand,), self._fraction, 0, None)


def _first_end(room: NodeState) -> int | None:
    return min(
        (running.ends_at for running in room.agent.running if running.ends_at is not None), default=None
    )
