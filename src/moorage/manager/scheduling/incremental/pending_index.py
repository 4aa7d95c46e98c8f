"""Who waits, in an order that is kept: the resident planner finds the first of those it may help in it.

A row is all that ask for one shape and run equally long: what is said to one of them is said to all, but for
their owners' quotas. So in a row there is a bucket for each claim, which can be set aside as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.results import HoldDetails
from moorage.manager.scheduling.core.shape import OwnedShape, Shape

Rank = tuple[int, int, str]
by_rank = attrgetter("queue_key")


class Bucket:
    """``parked``: its owner has no quota left for these. ``told``: what all of them were told last, if it was
    the same. ``front``: under which rank its row knows it."""

    __slots__ = ("claim", "front", "items", "mixed", "parked", "row", "told")

    def __init__(self, row: Row, claim: OwnedShape) -> None:
        self.row, self.claim = row, claim
        self.items: list[Pending] = []
        self.mixed = False  # somebody came who is not sorted in yet
        self.parked = False
        self.told: HoldDetails | None = None
        self.front: Rank | None = None


class Row:
    """``fronts``: the first of each bucket that is not parked, in order. ``front``: under which rank the line
    knows it."""

    __slots__ = ("buckets", "front", "fronts", "name", "shape")

    def __init__(self, shape: Shape, time_limit: int | None) -> None:
        self.shape, self.name = shape, (shape, time_limit)
        self.buckets: set[Bucket] = set()
        self.fronts: list[tuple[Rank, Bucket]] = []
        self.front: Rank | None = None


class Queue:
    """All rows. ``line``: the first of each, in order, as of the last ``settle``."""

    def __init__(self) -> None:
        self.line: list[tuple[Rank, Row]] = []
        self.rows_of: dict[Shape, list[Row]] = {}
        self._rows: dict[tuple[Shape, int | None], Row] = {}
        self._buckets: dict[tuple[OwnedShape, int | None], Bucket] = {}
        self._mixed: list[Bucket] = []  # those that are not in order yet
        self._parked: dict[tuple[str, str], dict[Bucket, None]] = {}

    def add(self, item: Pending) -> bool:
        """Whether nobody in it had this shape."""
        bucket, new = self._buckets.get((item.owned_shape, item.time_limit)), False
        if bucket is None:
            row = self._rows.get((item.shape, item.time_limit))
            if row is None:
                row = self._rows[item.shape, item.time_limit] = Row(item.shape, item.time_limit)
                rows = self.rows_of.setdefault(item.shape, [])
                new = not rows
                rows.append(row)
            bucket = self._buckets[item.owned_shape, item.time_limit] = Bucket(row, item.owned_shape)
            row.buckets.add(bucket)
        items = bucket.items
        items.append(item)
        if len(items) == 1:
            self._sort_in(bucket)
        elif not bucket.mixed and item.queue_key < items[-2].queue_key:  # mostly the youngest comes last
            bucket.mixed = True
            self._mixed.append(bucket)
        return new

    def remove(self, item: Pending) -> None:
        bucket = self._buckets[item.owned_shape, item.time_limit]
        row = bucket.row
        if bucket.mixed:
            self.settle()
        del bucket.items[bisect_left(bucket.items, item.queue_key, key=by_rank)]
        if not bucket.items:
            self.unpark(bucket)
            del self._buckets[item.owned_shape, item.time_limit]
            row.buckets.remove(bucket)
        self._sort_in(bucket)
        if not row.buckets:
            del self._rows[row.name]
            self.rows_of[row.shape].remove(row)
            if not self.rows_of[row.shape]:
                del self.rows_of[row.shape]

    def settle(self) -> None:
        """Sort in those that came."""
        for bucket in self._mixed:
            bucket.items.sort(key=by_rank)
            bucket.mixed = False
            self._sort_in(bucket)
        self._mixed.clear()

    def park(self, bucket: Bucket) -> None:
        bucket.parked = True
        for name in _owners(bucket):
            self._parked.setdefault(name, {})[bucket] = None
        self._sort_in(bucket)

    def unpark(self, bucket: Bucket) -> None:
        if bucket.parked:
            bucket.parked = False
            for name in _owners(bucket):
                mine = self._parked[name]
                del mine[bucket]
                if not mine:
                    del self._parked[name]
            self._sort_in(bucket)

    def parked_by(self, scope: str, name: str) -> list[Bucket]:
        """Those that a quota of that one may have held back."""
        return list(self._parked.get((scope, "" if scope == "group" else name), ()))

    def _sort_in(self, bucket: Bucket) -> None:
        row = bucket.row
        front = None if bucket.parked or not bucket.items else bucket.items[0].queue_key
        if front == bucket.front:
            return
        if bucket.front is not None:
            del row.fronts[bisect_left(row.fronts, (bucket.front,))]
        if front is not None:
            insort(row.fronts, (front, bucket))
        bucket.front = front
        first = row.fronts[0][0] if row.fronts else None
        if first != row.front:
            if row.front is not None:
                del self.line[bisect_left(self.line, (row.front,))]
            if first is not None:
                insort(self.line, (first, row))
            row.front = first


def _owners(bucket: Bucket) -> tuple[tuple[str, str], ...]:
    return ("user", bucket.claim.user), ("project", bucket.claim.project), ("group", "")


class Cursor:
    """One row as a pass goes through it, which changes nothing of it."""

    __slots__ = ("_at", "_heap", "row")

    def __init__(self, row: Row) -> None:
        self.row, self._heap = row, row.fronts.copy()  # what is sorted is a heap
        self._at: dict[Bucket, int] = {}

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def rank(self) -> Rank:
        return self._heap[0][0]

    @property
    def bucket(self) -> Bucket:
        return self._heap[0][1]

    @property
    def item(self) -> Pending:
        bucket = self._heap[0][1]
        return bucket.items[self._at.get(bucket, 0)]

    def advance(self) -> None:
        """To the next one."""
        bucket = self._heap[0][1]
        at = self._at[bucket] = self._at.get(bucket, 0) + 1
        if at < len(bucket.items):
            heapreplace(self._heap, (bucket.items[at].queue_key, bucket))
        else:
            heappop(self._heap)

    def drop(self) -> tuple[Bucket, list[Pending]]:
        """To the next one of another bucket, and never back to this one. Who is left in it."""
        _, bucket = heappop(self._heap)
        left = bucket.items[self._at.get(bucket, 0) :]
        self._at[bucket] = len(bucket.items)
        return bucket, left

    def skip_to(self, rank: Rank) -> None:
        """To the first one that is not before ``rank``."""
        self._heap = []
        for _, bucket in self.row.fronts:
            at = max(self._at.get(bucket, 0), bisect_left(bucket.items, rank, key=by_rank))
            self._at[bucket] = at
            if at < len(bucket.items):
                self._heap.append((bucket.items[at].queue_key, bucket))
        heapify(self._heap)
