"""The agents sorted in the order of choice while bookings change what is free: concentrated and dispersed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from fairlead.manager.scheduling.demand import Demand, rank_of
from fairlead.manager.scheduling.shape import Kind, Shape
from fairlead.manager.scheduling.stock import KERNELS, Room

# What is free of each slot, scarce slots first (negated for dispersed), and the agent's rank to break ties.
Key = tuple[int, ...]
Lane = dict[int, list[Key]]  # by how many families of devices that nobody asked for


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
        self._lanes: dict[tuple[frozenset[str], Kind], Lane] = {}
        self._lane_of: dict[Shape, Lane] = {}
        self._bounds: dict[Demand, Key] = {}

    def candidates(self, shape: Shape, demand: Demand, open_to: list[Room]) -> Iterator[Room]:
        """Those that ``demand`` fits on now, the best first. ``open_to``: the agents that serve its kind."""
        lane = self._lane_of.get(shape)
        if lane is None:
            lane = self._lane_of[shape] = self._lane(shape, open_to)
        rooms, bound = self._rooms, self._bound(demand)
        for unrequested in sorted(lane):
            segment = lane[unrequested]
            # Whatever fits has at least as much of every slot, so it sorts on one side of the request itself.
            if self._sign > 0:
                start, end = bisect_left(segment, bound), len(segment)
            else:
                start, end = 0, bisect_right(segment, (*bound, len(rooms)))
            for index in range(start, end):
                room = rooms[segment[index][-1]]
                if room.fits(demand):
                    yield room

    def key(self, room: Room) -> Key:
        free, sign = room.free, self._sign
        return (*[sign * free.get(slot, 0) for slot in self._slots], room.rank)

    def moved(self, room: Room, old: Key) -> None:
        """``room`` is no longer where ``old`` put it."""
        new = self.key(room)
        if new != old:
            for segment in self._segments(room, old):
                del segment[bisect_left(segment, old)]
                insort(segment, new)

    def remove(self, room: Room) -> None:
        key = self.key(room)
        for segment in self._segments(room, key):
            del segment[bisect_left(segment, key)]

    def _segments(self, room: Room, key: Key) -> Iterator[list[Key]]:
        for (families, _), lane in self._lanes.items():
            segment = lane.get(len(room.families - families))
            if segment is not None:
                at = bisect_left(segment, key)
                if at < len(segment) and segment[at] == key:
                    yield segment

    def _lane(self, shape: Shape, open_to: list[Room]) -> Lane:
        name = (shape.families, shape.kind)
        if name not in self._lanes:
            lane: Lane = {}
            for room in open_to:
                if not room.guarded:
                    lane.setdefault(len(room.families - shape.families), []).append(self.key(room))
            for segment in lane.values():
                segment.sort()
            self._lanes[name] = lane
        return self._lanes[name]

    def _bound(self, demand: Demand) -> Key:
        bound = self._bounds.get(demand)
        if bound is None:
            asked = dict(demand)
            bound = self._bounds[demand] = tuple(self._sign * asked.get(slot, 0) for slot in self._slots)
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
