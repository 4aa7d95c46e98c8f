"""When each agent will have room for a shape, kept for as long as the agent is as it was."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from fairlead.manager.scheduling.choose import Bench
from fairlead.manager.scheduling.demand import Demand
from fairlead.manager.scheduling.future import earliest
from fairlead.manager.scheduling.shape import Shape
from fairlead.manager.scheduling.stock import Room


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


class Forecasts:
    """For sessions of one kernel that any agent of their kind will do."""

    def __init__(self, fraction: str) -> None:
        self._fraction = fraction
        self._tables: dict[Shape, _Table] = {}
        self._log: list[int] = []  # ranks of agents, each time that one changed

    def changed(self, ranks: Iterable[int]) -> None:
        self._log += ranks

    def first(self, bench: Bench, shape: Shape, now: int) -> tuple[int, Room] | None:
        """The earliest time (unix microseconds, not before ``now``) and the agent, the first of equals; what
        this pass has booked is counted. None: never known."""
        table, demand = self._table(bench, shape), bench.demand(shape.total)
        busy = [room for room in bench.booked if room.rank in bench.crowd(shape.kind).open_ranks]
        times = []
        for room in busy:
            at = earliest(room, (demand,), self._fraction, now, None) if room.could_ever_fit(demand) else None
            if at is not None:
                times.append((at, room.rank))
        ranks = {room.rank for room in busy}
        come = bisect_right(table.row, (now, len(bench.rooms)))
        times += [(now, rank) for _, rank in table.row[:come] if rank not in ranks]
        times += next(([entry] for entry in table.row[come:] if entry[1] not in ranks), [])
        if not times:
            return None
        at, rank = min(times)
        return at, bench.rooms[rank]

    def _table(self, bench: Bench, shape: Shape) -> _Table:
        table, demand = self._tables.get(shape), bench.demand(shape.total)
        if table is None:
            found = {room.rank: self._when(bench, room, demand) for room in bench.crowd(shape.kind).open_to}
            known = {rank: when for rank, when in found.items() if when is not None}
            table = self._tables[shape] = _Table(known, len(self._log))
        elif table.seen < len(self._log):
            ranks = bench.crowd(shape.kind).open_ranks
            for rank in set(self._log[table.seen :]) & ranks:
                table.put(rank, self._when(bench, bench.rooms[rank], demand))
            table.seen = len(self._log)
        return table

    def _when(self, bench: Bench, room: Room, demand: Demand) -> int | None:
        """By what was there before this pass. Ends that have passed stay as they are: 0 is the earliest."""
        if not room.could_ever_fit(demand):
            return None
        asked = Room(room.agent, room.rank, bench.limited) if room.booked else room
        return earliest(asked, (demand,), self._fraction, 0, None)
