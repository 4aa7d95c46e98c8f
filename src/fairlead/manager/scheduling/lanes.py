"""The agents sorted in the order of choice while bookings change what is free: concentrated and dispersed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import ge, le

from fairlead.manager.scheduling.demand import Demand, rank_of
from fairlead.manager.scheduling.shape import Kind, Shape
from fairlead.manager.scheduling.stock import KERNELS, Room

# What is free of each slot, scarce slots first (negated for dispersed), and the agent's rank to break ties.
Key = tuple[int, ...]


class Lanes:
    """``concentrated`` takes the agent with the least room in which it fits, ``dispersed`` the one with most.

    Both prefer agents without devices that were not asked for, so that work without GPUs stays off GPU nodes.
    Ties go to the smaller agent id.
    """

    def __init__(self, rooms: list[Room], dispersed: bool, slot_priority: tuple[str, ...] = ()) -> None:
        self._rooms, self._sign = rooms, -1 if dispersed else 1
        slots = {slot for room in rooms for slot in room.free} - {KERNELS}
        first = {name: index for index, name in enumerate(slot_priority)}

        def order(slot: str) -> tuple[int, tuple[int, str]]:
            named = min(first.get(slot, len(first)), first.get(slot.partition(".")[0], len(first)))
            return named, rank_of(slot)

        self._slots = sorted(slots, key=order)
        self._known = slots
        self._lanes: dict[tuple[frozenset[str], Kind], list[list[Key]]] = {}
        self._lane_of: dict[Shape, list[list[Key]]] = {}
        self._in: list[list[list[Key]]] = [[] for _ in rooms]  # the sorted lists that each agent is in
        self._out: list[list[list[Key]]] = [[] for _ in rooms]  # and would be in, were it not set aside
        self._bounds: dict[Demand, Key | None] = {}
        for room in rooms:
            room.key = self._key(room)

    def first(self, shape: Shape, demand: Demand, open_to: list[Room]) -> Room | None:
        """The best of ``candidates``."""
        lane, bound = self._lane_of.get(shape), self._bounds.get(demand)
        if lane is None or bound is None or self._sign < 0 or (demand and demand[-1][0] == KERNELS):
            return next(self.candidates(shape, demand, open_to), None)
        for segment in lane:
            for index in range(bisect_left(segment, bound), len(segment)):
                key = segment[index]
                if all(map(ge, key, bound)):
                    return self._rooms[key[-1]]
        return None

    def candidates(self, shape: Shape, demand: Demand, open_to: list[Room]) -> Iterator[Room]:
        """Those that ``demand`` fits on now, the best first. ``open_to``: the agents that serve its kind."""
        lane = self._lane_of.get(shape)
        if lane is None:
            lane = self._lane_of[shape] = self._lane(shape, open_to)
        bound = self._bounds[demand] if demand in self._bounds else self._bound(demand)
        if bound is None:
            return
        rooms, ascending = self._rooms, self._sign > 0
        compare = ge if ascending else le
        kernels = demand[-1][1] if demand and demand[-1][0] == KERNELS else 0
        for segment in lane:
            # Whatever fits has at least as much of every slot, so it sorts on one side of the request itself.
            start = bisect_left(segment, bound) if ascending else 0
            end = len(segment) if ascending else bisect_right(segment, (*bound, len(rooms)))
            for index in range(start, end):
                key = segment[index]
                if all(map(compare, key, bound)):
                    room = rooms[key[-1]]
                    if not kernels or room.free[KERNELS] >= kernels:
                        yield room

    def moved(self, room: Room) -> None:
        """What is free of ``room`` has changed."""
        old, new = room.key, self._key(room)
        if new != old:
            room.key = new
            for segment in self._in[room.rank]:
                del segment[bisect_left(segment, old)]
                insort(segment, new)

    def remove(self, room: Room) -> None:
        """It is offered to nobody any more."""
        for segment in self._in[room.rank]:
            del segment[bisect_left(segment, room.key)]
        self._out[room.rank] += self._in[room.rank]
        self._in[room.rank] = []

    def restore(self, room: Room) -> None:
        for segment in self._out[room.rank]:
            insort(segment, room.key)
        self._in[room.rank] += self._out[room.rank]
        self._out[room.rank] = []

    def _key(self, room: Room) -> Key:
        free, sign = room.free, self._sign
        return (*[sign * free.get(slot, 0) for slot in self._slots], room.rank)

    def _lane(self, shape: Shape, open_to: list[Room]) -> list[list[Key]]:
        name = (shape.families, shape.kind)
        if name not in self._lanes:
            segments: dict[int, list[Key]] = {}
            for room in open_to:
                segment = segments.setdefault(len(room.families - shape.families), [])
                (self._out if room.guarded else self._in)[room.rank].append(segment)
                if not room.guarded:
                    segment.append(room.key)
            for segment in segments.values():
                segment.sort()
            self._lanes[name] = [segments[unrequested] for unrequested in sorted(segments)]
        return self._lanes[name]

    def _bound(self, demand: Demand) -> Key | None:
        """None: it asks for something that nobody has."""
        asked = dict(demand)
        some = asked.keys() - {KERNELS} <= self._known
        bound = tuple([self._sign * asked.get(slot, 0) for slot in self._slots]) if some else None
        self._bounds[demand] = bound
        return bound


class Ring:
    """Round robin: by id, beginning after the one chosen last for this architecture."""

    def __init__(self, rooms: list[Room], cursors: dict[str, str]) -> None:
        self._rooms, self.cursors = rooms, cursors
        # Ranks that may still fit, by demand: room only shrinks, so who was too small stays out.
        self._left: dict[tuple[Kind, Demand], list[int]] = {}

    def candidates(self, shape: Shape, demand: Demand, open_to: list[Room]) -> Iterator[Room]:
        name = (shape.kind, demand)
        left = self._left.get(name)
        if left is None:
            left = self._left[name] = sorted(room.rank for room in open_to)
        last = self.cursors.get(shape.kind.arch, "")
        start = bisect_right(left, last, key=lambda rank: self._rooms[rank].agent.agent_id)
        for rank in (*left[start:], *left[:start]):
            room = self._rooms[rank]
            if room.guarded:
                continue
            if room.fits(demand):
                yield room
            else:
                del left[bisect_left(left, rank)]

    def chosen(self, shape: Shape, room: Room) -> None:
        self.cursors[shape.kind.arch] = room.agent.agent_id
