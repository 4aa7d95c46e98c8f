"""Which agent takes a session, of those that it fits on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from fairlead.manager.scheduling.fit import Demand, Room, by_scarcity
from fairlead.manager.scheduling.model import Pending, Take

# What is free of each slot, scarce slots first (negated for dispersed), and the agent's rank to break ties.
Key = tuple[int, ...]
Segment = list[Key]

_SHARES = ".shares"


class Bench:
    """All agents of a group, kept sorted in the order of choice while bookings change what is free.

    ``concentrated`` takes the agent with the least room in which it fits, ``dispersed`` the one with most.
    Both prefer agents without devices that were not asked for, so that work without GPUs stays off GPU nodes.
    Ties go to the smaller agent id.
    """

    def __init__(self, rooms: list[Room], selection: str) -> None:
        self.rooms = rooms
        self._sign = 1 if selection == "concentrated" else -1
        self._slots = by_scarcity({slot for room in rooms for slot in room.free})
        self._orders: dict[tuple[frozenset[str], str, str], dict[int, Segment]] = {}

    def choose(self, item: Pending, demand: Demand) -> Room | None:
        """The agent for ``item``, or None if it fits on none that is available and not avoided."""
        families = frozenset(slot for slot, _ in demand if slot.endswith(_SHARES))
        segments = self._order(families, item.runtime, item.engine)
        for unrequested in sorted(segments):
            for key in self._that_may_fit(segments[unrequested], demand):
                room = self.rooms[key[-1]]
                if room.fits(demand) and room.agent.agent_id not in item.avoid:
                    return room
        return None

    def book(self, room: Room, demand: Demand) -> tuple[Take, ...]:
        """Book ``demand`` on ``room`` and put it back in its new place in every order it is part of."""
        old = self._key(room)
        takes = room.book(demand)
        new = self._key(room)
        for (families, runtime, engine), segments in self._orders.items():
            if room.serves(runtime, engine):
                segment = segments[len(room.families - families)]
                del segment[bisect_left(segment, old)]
                insort(segment, new)
        return takes

    def _order(self, families: frozenset[str], runtime: str, engine: str) -> dict[int, Segment]:
        name = (families, runtime, engine)
        if name not in self._orders:
            segments: dict[int, Segment] = {}
            for room in self.rooms:
                if room.agent.available and room.serves(runtime, engine):
                    segments.setdefault(len(room.families - families), []).append(self._key(room))
            for segment in segments.values():
                segment.sort()
            self._orders[name] = segments
        return self._orders[name]

    def _key(self, room: Room) -> Key:
        return (*(self._sign * room.free.get(slot, 0) for slot in self._slots), room.rank)

    def _that_may_fit(self, segment: Segment, demand: Demand) -> Iterator[Key]:
        # Whatever fits has at least as much of every slot, so it sorts on one side of the request itself.
        asked = dict(demand)
        bound = tuple(self._sign * asked.get(slot, 0) for slot in self._slots)
        if self._sign > 0:
            start, end = bisect_left(segment, bound), len(segment)
        else:
            start, end = 0, bisect_right(segment, (*bound, len(self.rooms)))
        return (segment[index] for index in range(start, end))
