"""The agents sorted in the order of choice while bookings change what is free: concentrated and dispersed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from functools import lru_cache

from moorage.manager.scheduling.core.demand import MOST, Demand, rank_of
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS, NodeState

# What is free of each slot, scarce slots first, and the agent's rank to break ties, as digits of one number:
# so keys are compared, changed and sorted as fast as numbers are. The highest bit of each digit is zero.
Key = int
BITS = MOST.bit_length() + 1


class ScoreIndex:
    """``concentrated`` takes the agent with the least room in which it fits, ``dispersed`` the one with most
    (its keys say how much is lacking of ``MOST``).

    Both prefer agents without devices that were not asked for, so that work without GPUs stays off GPU nodes.
    Ties go to the smaller agent id.
    """

    def __init__(self, rooms: list[NodeState], dispersed: bool, slot_priority: tuple[str, ...] = ()) -> None:
        self._rooms, self._dispersed = rooms, dispersed
        slots = set[str]().union(*[room.free for room in rooms]) - {KERNELS}
        first = {name: index for index, name in enumerate(slot_priority)}

        def order(slot: str) -> tuple[int, tuple[int, str]]:
            named = min(first.get(slot, len(first)), first.get(slot.partition(".")[0], len(first)))
            return named, rank_of(slot)

        self._slots = tuple(sorted(slots, key=order))
        self._rank_bits = len(rooms).bit_length()
        self._rank_mask = (1 << self._rank_bits) - 1
        places = range(len(self._slots))
        self._full = sum(MOST << BITS * place for place in places) << self._rank_bits
        # Whatever is lacking of one digit is lent by the bit above it: where that is gone, it was too small.
        self._lent = sum(MOST + 1 << BITS * place for place in places) << self._rank_bits
        self._lanes: dict[tuple[frozenset[str], NodeConstraints], list[list[Key]]] = {}
        self._families: dict[NodeConstraints, dict[frozenset[str], list[int]]] = {}
        self._segments: dict[tuple[int, ...], list[Key]] = {}
        # The sorted lists that each agent is in, and, of those set aside, would be in.
        self._in: list[tuple[list[Key], ...]] = [()] * len(rooms)
        self._out: dict[int, tuple[list[Key], ...]] = {}
        self._steps: dict[Demand, int | None] = {}
        for room in rooms:
            room.key = self._key(room)

    def lane(self, shape: Shape, open_to: list[NodeState]) -> list[list[Key]]:
        """Where to look for ``shape``. ``open_to``: the agents that serve its kind."""
        name = (shape.families, shape.constraints)
        if name not in self._lanes:
            asked, ranks = shape.families, dict[int, list[int]]()
            for families, some in self._by_families(shape.constraints, open_to).items():
                if not asked <= families:
                    # Who has none of what is asked for is too small for ever.
                    some = [rank for rank in some if asked <= self._rooms[rank].free.keys()]
                ranks.setdefault(len(families - asked), []).extend(some)
            self._lanes[name] = [
                self._segment(tuple(sorted(ranks[unrequested]))) for unrequested in sorted(ranks)
            ]
        return self._lanes[name]

    def _by_families(
        self, kind: NodeConstraints, open_to: list[NodeState]
    ) -> dict[frozenset[str], list[int]]:
        found = self._families.get(kind)
        if found is None:
            found = self._families[kind] = {}
            for room in open_to:
                found.setdefault(room.families, []).append(room.rank)
        return found

    def first(self, lane: list[list[Key]], step: int) -> NodeState | None:
        """The best of ``candidates``, where nobody limits the number of kernels."""
        lent = self._lent
        if self._dispersed:
            most = self._full - step | self._rank_mask
            for segment in lane:
                for index in range(bisect_right(segment, most)):
                    if ((most | lent) - segment[index]) & lent == lent:
                        return self._rooms[segment[index] & self._rank_mask]
            return None
        for segment in lane:
            for index in range(bisect_left(segment, step), len(segment)):
                if ((segment[index] | lent) - step) & lent == lent:
                    return self._rooms[segment[index] & self._rank_mask]
        return None

    def candidates(self, shape: Shape, demand: Demand, open_to: list[NodeState]) -> Iterator[NodeState]:
        """Those that ``demand`` fits on now, the best first."""
        step, lent, mask = self.step(demand), self._lent, self._rank_mask
        if step is None:
            return
        kernels = demand[-1][1] if demand and demand[-1][0] == KERNELS else 0
        most = self._full - step | mask
        for segment in self.lane(shape, open_to):
            # Whatever fits has at least as much of every slot, so it sorts on one side of the request itself.
            start = 0 if self._dispersed else bisect_left(segment, step)
            end = bisect_right(segment, most) if self._dispersed else len(segment)
            for index in range(start, end):
                key = segment[index]
                left = (most | lent) - key if self._dispersed else (key | lent) - step
                if left & lent == lent:
                    room = self._rooms[key & mask]
                    if not kernels or room.free[KERNELS] >= kernels:
                        yield room

    def moved(self, room: NodeState) -> None:
        """What is free of ``room`` has changed."""
        self._move(room, self._key(room))

    def taken(self, room: NodeState, step: int) -> None:
        """``step`` is what was taken of ``room``, all of it in whole devices."""
        self._move(room, room.key + step if self._dispersed else room.key - step)

    def _move(self, room: NodeState, new: Key) -> None:
        old = room.key
        if new != old:
            room.key = new
            for segment in self._in[room.rank]:
                index = bisect_left(segment, old)
                del segment[index]
                insort(segment, new)

    def remove(self, room: NodeState) -> None:
        """It is offered to nobody any more."""
        for segment in self._in[room.rank]:
            del segment[bisect_left(segment, room.key)]
        self._out[room.rank], self._in[room.rank] = self._in[room.rank], ()

    def restore(self, room: NodeState) -> None:
        for segment in self._out[room.rank]:
            insort(segment, room.key)
        self._in[room.rank] = self._out.pop(room.rank)

    def step(self, demand: Demand) -> int | None:
        """What a key loses by ``demand``. None: it asks for something that nobody has."""
        if demand in self._steps:
            return self._steps[demand]
        step = _step(demand, self._slots)
        if step is not None:
            step <<= self._rank_bits
        self._steps[demand] = step
        return step

    def _key(self, room: NodeState) -> Key:
        known = room.agent.packed.keys
        key = known.get(self._slots) if room.lent else None
        if key is None:
            free, key = room.free, 0
            for slot in self._slots:
                key = key << BITS | free.get(slot, 0)
            if room.lent:
                known[self._slots] = key
        # What is lacking of a digit that is all ones is the digit turned over.
        return (key << self._rank_bits ^ (self._full if self._dispersed else 0)) | room.rank

    def _segment(self, ranks: tuple[int, ...]) -> list[Key]:
        """Sorted keys of these agents; lanes of several kinds of sessions mostly have the same ones."""
        segment = self._segments.get(ranks)
        if segment is None:
            segment = self._segments[ranks] = []
            before: tuple[list[Key], ...] = ()
            after: tuple[list[Key], ...] = (segment,)  # most are in the same ones
            for rank in ranks:
                if rank in self._out:
                    self._out[rank] = (*self._out[rank], segment)
                    continue
                if self._in[rank] is not before:
                    before, after = self._in[rank], (*self._in[rank], segment)
                self._in[rank] = after
                segment.append(self._rooms[rank].key)
            segment.sort()
        return segment


@lru_cache(maxsize=65_536)
def _step(demand: Demand, slots: tuple[str, ...]) -> int | None:
    asked, step = {slot: amount for slot, amount in demand if slot != KERNELS}, 0
    if not asked.keys() <= set(slots) or any(amount > MOST for amount in asked.values()):
        return None
    for slot in slots:
        step = step << BITS | asked.get(slot, 0)
    return step


class Ring:
    """Round robin: by id, beginning after the one chosen last for this architecture."""

    def __init__(self, rooms: list[NodeState], cursors: dict[str, str]) -> None:
        self._rooms, self.cursors = rooms, cursors
        # Ranks that may still fit, by demand: room only shrinks, so who was too small stays out.
        self._left: dict[tuple[NodeConstraints, Demand], list[int]] = {}

    def candidates(self, shape: Shape, demand: Demand, open_to: list[NodeState]) -> Iterator[NodeState]:
        name = (shape.constraints, demand)
        left = self._left.get(name)
        if left is None:
            left = self._left[name] = sorted(room.rank for room in open_to)
        last = self.cursors.get(shape.constraints.arch, "")
        start = bisect_right(left, last, key=lambda rank: self._rooms[rank].agent.agent_id)
        for rank in (*left[start:], *left[:start]):
            room = self._rooms[rank]
            if room.guarded:
                continue
            if room.fits(demand):
                yield room
            else:
                del left[bisect_left(left, rank)]

    def chosen(self, shape: Shape, room: NodeState) -> None:
        self.cursors[shape.constraints.arch] = room.agent.agent_id
