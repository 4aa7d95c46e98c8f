"""Score index: nodes sorted by score while allocations change what they have free (concentrated, dispersed).

A node's score key is one integer. From the high bits to the low ones it holds what is free of each slot,
scarce slots first, and the node's rank as the tie breaker. Each slot is a digit of ``DIGIT_BITS`` bits, whose
highest bit is zero in every key. So keys order nodes as tuples of amounts would, and one subtraction computes
all digits of a difference:

* Fit. Set the zero bit of every digit (the guard bits), then subtract the request: a digit that is too small
  borrows from its guard bit, so the request fits exactly if all guard bits survive.
* Skip. A node that fits has a key at least as large as the packed request, so bisection finds the first
  candidate of a sorted list.
* Update. Allocating scalar slots and whole devices subtracts the packed request from the key.

``dispersed`` stores complements (``MAX_AMOUNT`` minus what is free), so that the node with the most free
capacity comes first. ``tests/model/test_score_index.py`` holds the index to ``min()`` over a plain key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
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
    """``concentrated`` prefers the node with the least free capacity on which the request fits, ``dispersed``
    the one with the most.

    Both prefer nodes with fewer device families that were not requested, so that work without GPUs stays off
    GPU nodes: a shape searches one segment for each number of unrequested families. Ties go to the smaller
    agent id. Reserved nodes are in no segment.
    """

    def __init__(self, nodes: list[NodeState], dispersed: bool, slot_priority: tuple[str, ...] = ()) -> None:
        self._nodes, self._dispersed = nodes, dispersed
        slots = set[str]().union(*[node.free for node in nodes]) - {KERNELS}
        priority = {name: index for index, name in enumerate(slot_priority)}

        def sort_key(slot: str) -> tuple[int, tuple[int, str]]:
            lowest = len(priority)
            listed = min(priority.get(slot, lowest), priority.get(slot.partition(".")[0], lowest))
            return listed, slot_sort_key(slot)

        self._slots = tuple(sorted(slots, key=sort_key))
        self._rank_bits = len(nodes).bit_length()
        self._rank_mask = (1 << self._rank_bits) - 1
        digits = range(len(self._slots))
        self._all_max = sum(MAX_AMOUNT << DIGIT_BITS * digit for digit in digits) << self._rank_bits
        self._guard_bits = sum(MAX_AMOUNT + 1 << DIGIT_BITS * digit for digit in digits) << self._rank_bits
        self._by_shape: dict[tuple[frozenset[str], NodeConstraints], list[Segment]] = {}
        self._by_families: dict[NodeConstraints, dict[frozenset[str], list[int]]] = {}
        # Segments by the ranks of their nodes: shapes with the same nodes share a segment.
        self._segments: dict[tuple[int, ...], Segment] = {}
        # By rank: the segments that contain the node, and for a removed node, those that would.
        self._containing: list[tuple[Segment, ...]] = [()] * len(nodes)
        self._removed: dict[int, tuple[Segment, ...]] = {}
        self._packed: dict[Demand, int | None] = {}
        for node in nodes:
            node.score_key = self._key(node)

    def segments(self, shape: Shape, schedulable: list[NodeState]) -> list[Segment]:
        """The segments to search for ``shape``, best first. ``schedulable``: the nodes that satisfy its
        constraints."""
        name = (shape.families, shape.constraints)
        if name not in self._by_shape:
            requested, ranks = shape.families, dict[int, list[int]]()
            for families, members in self._group_by_families(shape.constraints, schedulable).items():
                if not requested <= families:
                    # Agents that lack a requested slot entirely can never fit.
                    members = [rank for rank in members if requested <= self._nodes[rank].free.keys()]
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
        """The first of ``candidates``, for pools without kernel limits."""
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

    def candidates(self, shape: Shape, demand: Demand, schedulable: list[NodeState]) -> Iterator[NodeState]:
        """The nodes on which ``demand`` fits now, best first."""
        packed, guard_bits, mask = self.pack(demand), self._guard_bits, self._rank_mask
        if packed is None:
            return
        kernels = demand[-1][1] if demand and demand[-1][0] == KERNELS else 0
        # Complements: a node fits if each digit of its key is at most that of this number.
        largest = self._all_max - packed | mask
        for segment in self.segments(shape, schedulable):
            start = 0 if self._dispersed else bisect_left(segment, packed)
            end = bisect_right(segment, largest) if self._dispersed else len(segment)
            for index in range(start, end):
                key = segment[index]
                rest = (largest | guard_bits) - key if self._dispersed else (key | guard_bits) - packed
                if rest & guard_bits == guard_bits:
                    node = self._nodes[key & mask]
                    if not kernels or node.free[KERNELS] >= kernels:
                        yield node

    def update(self, node: NodeState) -> None:
        """Sort ``node`` anew: what it has free has changed."""
        self._move(node, self._key(node))

    def subtract(self, node: NodeState, packed: int) -> None:
        """``update`` for an allocation that changed the key by exactly ``packed``."""
        self._move(node, node.score_key + packed if self._dispersed else node.score_key - packed)

    def _move(self, node: NodeState, new: ScoreKey) -> None:
        old = node.score_key
        if new != old:
            node.score_key = new
            for segment in self._containing[node.rank]:
                index = bisect_left(segment, old)
                del segment[index]
                insort(segment, new)

    def remove(self, node: NodeState) -> None:
        """Offer ``node`` to nobody until ``restore``."""
        for segment in self._containing[node.rank]:
            del segment[bisect_left(segment, node.score_key)]
        self._removed[node.rank], self._containing[node.rank] = self._containing[node.rank], ()

    def restore(self, node: NodeState) -> None:
        for segment in self._removed[node.rank]:
            insort(segment, node.score_key)
        self._containing[node.rank] = self._removed.pop(node.rank)

    def pack(self, demand: Demand) -> int | None:
        """``demand`` in the digits of a key; None if no node has a slot that it requests."""
        if demand in self._packed:
            return self._packed[demand]
        packed = _pack(demand, self._slots)
        if packed is not None:
            packed <<= self._rank_bits
        self._packed[demand] = packed
        return packed

    def _key(self, node: NodeState) -> ScoreKey:
        # While a node's amounts are still those of its agent, the packed number is kept with the agent:
        # most agents are the same objects in the next pass.
        cache = node.agent.packed.score_keys
        key = cache.get(self._slots) if node.free_shared else None
        if key is None:
            free, key = node.free, 0
            for slot in self._slots:
                key = key << DIGIT_BITS | free.get(slot, 0)
            if node.free_shared:
                cache[self._slots] = key
        # All bits of MAX_AMOUNT are ones, so XOR computes the complement of each digit.
        return (key << self._rank_bits ^ (self._all_max if self._dispersed else 0)) | node.rank

    def _segment(self, ranks: tuple[int, ...]) -> Segment:
        segment = self._segments.get(ranks)
        if segment is None:
            segment = self._segments[ranks] = []
            # Most nodes are in the same segments: they share one tuple.
            before: tuple[Segment, ...] = ()
            after: tuple[Segment, ...] = (segment,)
            for rank in ranks:
                if rank in self._removed:
                    self._removed[rank] = (*self._removed[rank], segment)
                    continue
                if self._containing[rank] is not before:
                    before, after = self._containing[rank], (*self._containing[rank], segment)
                self._containing[rank] = after
                segment.append(self._nodes[rank].score_key)
            segment.sort()
        return segment


@lru_cache(maxsize=65_536)
def _pack(demand: Demand, slots: tuple[str, ...]) -> int | None:
    amounts, packed = {slot: amount for slot, amount in demand if slot != KERNELS}, 0
    if not amounts.keys() <= set(slots) or any(amount > MAX_AMOUNT for amount in amounts.values()):
        return None
    for slot in slots:
        packed = packed << DIGIT_BITS | amounts.get(slot, 0)
    return packed
