"""Score index: nodes sorted by score while allocations change their free amounts (concentrated,
dispersed).

The score depends on the requested slots, so there is a view of the nodes for each set of requested
slots. In a view, a node's score key is one integer. From the high bits to the low bits, it holds
the free amount of each slot, and the node's rank as the tie breaker: unrequested devices, slots
that the group lists (``slot_priority``), requested slots, then the rest, scarce ones first in each.
Each slot is a digit of ``DIGIT_BITS`` bits, whose highest bit is zero in every key. Keys therefore
order nodes as tuples of amounts would, and one subtraction computes all digits of a difference:

* Fit. Set the zero bit of every digit (the guard bits), then subtract the request: a digit that is
  too small borrows from its guard bit, so the request fits exactly if all guard bits survive.
* Skip. A node that fits has a key at least as large as the packed request, so bisection finds the
  first candidate of a sorted list.
* Update. Allocating scalar slots and whole devices subtracts the packed request from the key. Other
  views only record the node, and sort it again on their next search.

``dispersed`` stores complements (``MAX_AMOUNT`` minus what is free), so that the node with the most
free capacity comes first, except for unrequested devices. ``tests/model/test_score_index.py``
compares the index with ``min()`` over a plain key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from functools import lru_cache

from moorage.manager.scheduling.core.demand import MAX_AMOUNT, Demand, slot_sort_key
from moorage.manager.scheduling.core.shape import NodeConstraints, Shape
from moorage.manager.scheduling.placement.free_capacity import KERNELS
from moorage.manager.scheduling.placement.node_state import NodeState

ScoreKey = int
DIGIT_BITS = MAX_AMOUNT.bit_length() + 1
# Keys in ascending order. A shape searches a list of these, best first.
Segment = list[ScoreKey]


class ScoreIndex:
    """``concentrated`` prefers the node with the least free capacity on which the request fits,
    ``dispersed`` the one with the most.

    Both prefer nodes with fewer unrequested device families and, among equals, nodes with fewer
    free devices of those families, so that work without GPUs does not take the CPUs that GPU work
    needs. Ties go to the smaller agent id. Reserved nodes are in no view.
    """

    def __init__(
        self, nodes: list[NodeState], dispersed: bool, slot_priority: tuple[str, ...] = ()
    ) -> None:
        self._nodes = nodes
        self._dispersed = dispersed
        slots = set[str]().union(*[node.free for node in nodes]) - {KERNELS}
        self._families = frozenset[str]().union(*[node.families for node in nodes])
        self._priority = {name: index for index, name in enumerate(slot_priority)}
        self._slots = tuple(sorted(slots, key=slot_sort_key))
        self._views: dict[frozenset[str], ScoreView] = {}
        self._removed: set[int] = set()

    def view(self, shape: Shape) -> ScoreView:
        """View for the slots that ``shape`` requests."""
        requested = frozenset(shape.amounts)
        found = self._views.get(requested)
        if found is None:
            ordered = sorted(
                self._slots, key=lambda slot: (self._listed(slot), slot not in requested)
            )
            unrequested = [slot for slot in ordered if slot in self._families - requested]
            order = (*unrequested, *(slot for slot in ordered if slot not in unrequested))
            found = ScoreView(
                self._nodes,
                order,
                unrequested=len(unrequested),
                dispersed=self._dispersed,
                removed=self._removed,
            )
            self._views[requested] = found

        return found

    def _listed(self, slot: str) -> int:
        """Position of a slot or its family in the ``slot_priority`` of the group."""
        lowest = len(self._priority)
        priority = self._priority
        return min(priority.get(slot, lowest), priority.get(slot.partition(".")[0], lowest))

    def update(self, node: NodeState) -> None:
        """Sort ``node`` again, because its free amounts have changed."""
        for view in self._views.values():
            view.outdated.add(node.rank)

    def subtract(self, node: NodeState, view: ScoreView, packed: int) -> None:
        """Like ``update``, for an allocation that changed the key in ``view`` by exactly
        ``packed``."""
        for other in self._views.values():
            if other is not view:
                other.outdated.add(node.rank)
        view.subtract(node.rank, packed)

    def remove(self, node: NodeState) -> None:
        """Remove ``node`` from all views until ``restore``."""
        for view in self._views.values():
            view.remove(node.rank)
        self._removed.add(node.rank)

    def restore(self, node: NodeState) -> None:
        self._removed.discard(node.rank)
        for view in self._views.values():
            view.restore(node.rank)


class ScoreView:
    """Nodes in the order of their scores for requests of certain slots. ``outdated``: ranks of
    nodes that have changed since the last search."""

    def __init__(
        self,
        nodes: list[NodeState],
        slots: tuple[str, ...],
        unrequested: int,
        dispersed: bool,
        *,
        removed: Iterable[int],
    ) -> None:
        """``unrequested``: this many of ``slots`` are unrequested devices."""
        self._nodes = nodes
        self._slots = slots
        self._dispersed = dispersed
        self._rank_bits = len(nodes).bit_length()
        self._rank_mask = (1 << self._rank_bits) - 1
        digits = range(len(slots))
        self._all_max = sum(MAX_AMOUNT << DIGIT_BITS * digit for digit in digits) << self._rank_bits
        self._guard_bits = (
            sum(MAX_AMOUNT + 1 << DIGIT_BITS * digit for digit in digits) << self._rank_bits
        )

        # All bits of MAX_AMOUNT are ones, so XOR computes the complement of each of these digits.
        flipped = range(len(slots) - unrequested) if dispersed else range(0)
        self._flipped = (
            sum(MAX_AMOUNT << DIGIT_BITS * digit for digit in flipped) << self._rank_bits
        )
        self.outdated: set[int] = set()
        self._by_shape: dict[tuple[frozenset[str], NodeConstraints], list[Segment]] = {}
        self._by_families: dict[NodeConstraints, dict[frozenset[str], list[int]]] = {}

        # Segments by the ranks of their nodes: shapes with the same nodes share a segment.
        self._segments: dict[tuple[int, ...], Segment] = {}
        # By rank: the segments that contain the node or, for a removed node, that would contain it.
        self._containing: list[tuple[Segment, ...]] = [()] * len(nodes)
        self._removed: dict[int, tuple[Segment, ...]] = dict.fromkeys(removed, ())
        self._packed: dict[Demand, int | None] = {}
        self._keys = [self._key(node) for node in nodes]

    def key(self, node: NodeState) -> ScoreKey:
        """Sort key of ``node``."""
        return self._key(node) if node.rank in self.outdated else self._keys[node.rank]

    def segments(self, shape: Shape, schedulable: list[NodeState]) -> list[Segment]:
        """Segments to search for ``shape``, best first. ``schedulable``: the nodes that satisfy its
        constraints."""
        name = (shape.families, shape.constraints)
        if name not in self._by_shape:
            requested = shape.families
            ranks = dict[int, list[int]]()
            for families, members in self._group_by_families(
                shape.constraints, schedulable
            ).items():
                if not requested <= families:
                    # Agents that lack a requested slot entirely can never fit.
                    members = [
                        rank for rank in members if requested <= self._nodes[rank].free.keys()
                    ]

                ranks.setdefault(len(families - requested), []).extend(members)

            self._by_shape[name] = [
                self._segment(tuple(sorted(ranks[unrequested]))) for unrequested in sorted(ranks)
            ]

        return self._by_shape[name]

    def _group_by_families(
        self, constraints: NodeConstraints, schedulable: list[NodeState]
    ) -> dict[frozenset[str], list[int]]:
        found = self._by_families.get(constraints)
        if found is None:
            found = self._by_families[constraints] = {}
            for node in schedulable:
                found.setdefault(node.families, []).append(node.rank)
        return found

    def best(self, segments: list[Segment], packed: int) -> NodeState | None:
        """The first node of ``candidates``, for pools without kernel limits."""
        if self.outdated:
            self._sort_outdated()

        guard_bits = self._guard_bits
        if self._dispersed:
            largest = self._all_max - packed | self._rank_mask
            for segment in segments:
                for index in range(bisect_right(segment, largest)):
                    if ((largest | guard_bits) - segment[index]) & guard_bits == guard_bits:
                        return self._nodes[segment[index] & self._rank_mask]

            return None

        for segment in segments:
            for index in range(bisect_left(segment, packed), len(segment)):
                if ((segment[index] | guard_bits) - packed) & guard_bits == guard_bits:
                    return self._nodes[segment[index] & self._rank_mask]

        return None

    def candidates(
        self, shape: Shape, demand: Demand, schedulable: list[NodeState]
    ) -> Iterator[NodeState]:
        """Nodes on which ``demand`` fits now, best first."""
        packed = self.pack(demand)
        guard_bits = self._guard_bits
        mask = self._rank_mask
        if packed is None:
            return
        if self.outdated:
            self._sort_outdated()

        kernels = demand[-1][1] if demand and demand[-1][0] == KERNELS else 0
        # For complements, a node fits if each digit of its key is at most the corresponding digit
        # of this number.
        largest = self._all_max - packed | mask
        for segment in self.segments(shape, schedulable):
            start = 0 if self._dispersed else bisect_left(segment, packed)
            end = bisect_right(segment, largest) if self._dispersed else len(segment)
            for index in range(start, end):
                key = segment[index]
                rest = (
                    (largest | guard_bits) - key if self._dispersed else (key | guard_bits) - packed
                )
                if rest & guard_bits == guard_bits:
                    node = self._nodes[key & mask]
                    if not kernels or node.free[KERNELS] >= kernels:
                        yield node

    def subtract(self, rank: int, packed: int) -> None:
        """Record an allocation that changed this node's key by exactly ``packed``."""
        if rank not in self.outdated:
            old = self._keys[rank]
            self._move(rank, old + packed if self._dispersed else old - packed)

    def _sort_outdated(self) -> None:
        for rank in self.outdated:
            self._move(rank, self._key(self._nodes[rank]))
        self.outdated.clear()

    def _move(self, rank: int, new: ScoreKey) -> None:
        old = self._keys[rank]
        if new != old:
            self._keys[rank] = new
            for segment in self._containing[rank]:
                index = bisect_left(segment, old)
                del segment[index]
                insort(segment, new)

    def remove(self, rank: int) -> None:
        for segment in self._containing[rank]:
            del segment[bisect_left(segment, self._keys[rank])]
        self._removed[rank] = self._containing[rank]
        self._containing[rank] = ()

    def restore(self, rank: int) -> None:
        for segment in self._removed[rank]:
            insort(segment, self._keys[rank])
        self._containing[rank] = self._removed.pop(rank)

    def pack(self, demand: Demand) -> int | None:
        """Pack ``demand`` into the digits of a key; None if no node has a requested slot."""
        if demand in self._packed:
            return self._packed[demand]
        packed = _pack(demand, self._slots)
        if packed is not None:
            packed <<= self._rank_bits
        self._packed[demand] = packed
        return packed

    def _key(self, node: NodeState) -> ScoreKey:
        # While a node's amounts are still those of its agent, the packed number is kept with the
        # agent, because most agents are the same objects in the next pass.
        cache = node.agent.packed.score_keys
        key = cache.get(self._slots) if node.free_shared else None
        if key is None:
            free = node.free
            key = 0
            for slot in self._slots:
                key = key << DIGIT_BITS | free.get(slot, 0)

            if node.free_shared:
                cache[self._slots] = key

        return (key << self._rank_bits ^ self._flipped) | node.rank

    def _segment(self, ranks: tuple[int, ...]) -> Segment:
        segment = self._segments.get(ranks)
        if segment is None:
            segment = self._segments[ranks] = []
            # Most nodes are in the same segments, so they share one tuple.
            before: tuple[Segment, ...] = ()
            after: tuple[Segment, ...] = (segment,)
            for rank in ranks:
                if rank in self._removed:
                    self._removed[rank] = (*self._removed[rank], segment)
                    continue
                if self._containing[rank] is not before:
                    before = self._containing[rank]
                    after = (*self._containing[rank], segment)

                self._containing[rank] = after
                segment.append(self._keys[rank])

            segment.sort()

        return segment


@lru_cache(maxsize=65_536)
def _pack(demand: Demand, slots: tuple[str, ...]) -> int | None:
    amounts = {slot: amount for slot, amount in demand if slot != KERNELS}
    packed = 0
    if not amounts.keys() <= set(slots) or any(amount > MAX_AMOUNT for amount in amounts.values()):
        return None
    for slot in slots:
        packed = packed << DIGIT_BITS | amounts.get(slot, 0)
    return packed
