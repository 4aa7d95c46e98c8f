"""Index of pending sessions, kept sorted between passes.

Two levels. A ``ShapeQueue`` holds all sessions of one shape and time limit, overdue ones apart from
the others: capacity treats them equally, so once its first session is refused, the rest need no
examination, except for their right to a reservation. Within it, an ``OwnerQueue`` holds the
sessions of one user and project: quotas treat them equally, so it can be parked as a whole while a
quota is exhausted.

Invariants, once ``sort_added`` has run: the items of an owner queue are sorted;
``ShapeQueue.heads`` holds the first item of each owner queue that is not parked, sorted;
``PendingIndex.heads`` holds the first item of each shape queue, sorted. ``_update_head`` restores
the last two after every change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.order import overdue_key
from moorage.manager.scheduling.core.results import HoldDetails
from moorage.manager.scheduling.core.shape import OwnedShape, Shape, user_of_qos

QueueKey = tuple[int, int, str]
_by_queue_key = attrgetter("queue_key")


class OwnerQueue:
    """``parked``: a quota of the owner is exhausted. ``last_hold``: the last hold of all its
    sessions, if it was the same. ``head``: the key under which the shape queue lists it."""

    __slots__ = ("head", "items", "key", "last_hold", "owned_shape", "parked", "queue", "unsorted")

    def __init__(self, queue: ShapeQueue, owned_shape: OwnedShape) -> None:
        self.queue = queue
        self.owned_shape = owned_shape
        self.key: Callable[[Pending], QueueKey] = overdue_key if queue.overdue else _by_queue_key
        self.items: list[Pending] = []
        self.unsorted = False
        self.parked = False
        self.last_hold: HoldDetails | None = None
        self.head: QueueKey | None = None


class ShapeQueue:
    """``heads``: the first session of each owner queue that is not parked. ``head``: the key under
    which the index lists it. ``overdue``: all of its sessions are overdue."""

    __slots__ = ("head", "heads", "name", "overdue", "owners", "shape")

    def __init__(self, shape: Shape, time_limit: int | None, overdue: bool) -> None:
        self.shape = shape
        self.overdue = overdue
        self.name = (shape, time_limit, overdue)
        self.owners: set[OwnerQueue] = set()
        self.heads: list[tuple[QueueKey, OwnerQueue]] = []
        self.head: QueueKey | None = None


class PendingIndex:
    """``heads``: the first session of each shape queue, sorted, as of the last ``sort_added``."""

    def __init__(self) -> None:
        self.heads: list[tuple[QueueKey, ShapeQueue]] = []
        self.queues_of: dict[Shape, list[ShapeQueue]] = {}
        self._queues: dict[tuple[Shape, int | None, bool], ShapeQueue] = {}
        self._owner_queues: dict[tuple[OwnedShape, int | None, bool], OwnerQueue] = {}
        self._unsorted: list[OwnerQueue] = []
        self._parked: dict[tuple[str, str], dict[OwnerQueue, None]] = {}

    def add(self, item: Pending, overdue: bool) -> bool:
        """Add a session. Returns whether its shape is new to the index."""
        name = (item.owned_shape, item.time_limit, overdue)
        new = False
        owner = self._owner_queues.get(name)
        if owner is None:
            queue = self._queues.get((item.shape, item.time_limit, overdue))
            if queue is None:
                queue = ShapeQueue(item.shape, item.time_limit, overdue)
                self._queues[queue.name] = queue
                queues = self.queues_of.setdefault(item.shape, [])
                new = not queues
                queues.append(queue)

            owner = OwnerQueue(queue, item.owned_shape)
            self._owner_queues[name] = owner
            queue.owners.add(owner)

        items = owner.items
        items.append(item)
        if len(items) == 1:
            self._update_head(owner)
        elif not owner.unsorted and owner.key(item) < owner.key(items[-2]):
            # Rare, because the youngest session usually comes last. The queue is sorted once for
            # all added sessions.
            owner.unsorted = True
            self._unsorted.append(owner)

        return new

    def remove(self, item: Pending, overdue: bool) -> None:
        owner = self._owner_queues[item.owned_shape, item.time_limit, overdue]
        queue = owner.queue
        if owner.unsorted:
            self.sort_added()

        del owner.items[bisect_left(owner.items, owner.key(item), key=owner.key)]
        if not owner.items:
            self.unpark(owner)
            del self._owner_queues[item.owned_shape, item.time_limit, overdue]
            queue.owners.remove(owner)

        self._update_head(owner)
        if not queue.owners:
            del self._queues[queue.name]
            self.queues_of[queue.shape].remove(queue)
            if not self.queues_of[queue.shape]:
                del self.queues_of[queue.shape]

    def sort_added(self) -> None:
        for owner in self._unsorted:
            owner.items.sort(key=owner.key)
            owner.unsorted = False
            self._update_head(owner)
        self._unsorted.clear()

    def park(self, owner: OwnerQueue) -> None:
        owner.parked = True
        for name in _quota_names(owner):
            self._parked.setdefault(name, {})[owner] = None
        self._update_head(owner)

    def unpark(self, owner: OwnerQueue) -> None:
        if owner.parked:
            owner.parked = False
            for name in _quota_names(owner):
                parked = self._parked[name]
                del parked[owner]
                if not parked:
                    del self._parked[name]
            self._update_head(owner)

    def parked_by(self, scope: str, name: str) -> list[OwnerQueue]:
        """Queues that this quota may have parked."""
        return list(self._parked.get((scope, "" if scope == "group" else name), ()))

    def _update_head(self, owner: OwnerQueue) -> None:
        queue = owner.queue
        head = None if owner.parked or not owner.items else owner.key(owner.items[0])
        if head == owner.head:
            return
        # A 1-tuple sorts just before the pair that starts with the same element, so queues are
        # never compared.
        if owner.head is not None:
            del queue.heads[bisect_left(queue.heads, (owner.head,))]
        if head is not None:
            insort(queue.heads, (head, owner))

        owner.head = head
        first = queue.heads[0][0] if queue.heads else None
        if first != queue.head:
            if queue.head is not None:
                del self.heads[bisect_left(self.heads, (queue.head,))]
            if first is not None:
                insort(self.heads, (first, queue))

            queue.head = first


def _quota_names(owner: OwnerQueue) -> tuple[tuple[str, str], ...]:
    user = owner.owned_shape.user
    project = owner.owned_shape.project
    names = ("user", user), ("group-user", user), ("project", project), ("group", "")
    qos = owner.owned_shape.qos
    return (*names, ("qos", qos), ("qos-user", user_of_qos(qos, user))) if qos else names


class ShapeCursor:
    """Position of one pass in a shape queue, which the pass does not change. Merges the owner
    queues by key."""

    __slots__ = ("_heap", "_position", "queue")

    def __init__(self, queue: ShapeQueue) -> None:
        # a sorted list is a heap
        self.queue = queue
        self._heap = queue.heads.copy()
        self._position: dict[OwnerQueue, int] = {}

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def key(self) -> QueueKey:
        return self._heap[0][0]

    @property
    def owner(self) -> OwnerQueue:
        return self._heap[0][1]

    @property
    def item(self) -> Pending:
        owner = self._heap[0][1]
        return owner.items[self._position.get(owner, 0)]

    def advance(self) -> None:
        """Move to the next session."""
        owner = self._heap[0][1]
        position = self._position[owner] = self._position.get(owner, 0) + 1
        if position < len(owner.items):
            heapreplace(self._heap, (owner.key(owner.items[position]), owner))
        else:
            heappop(self._heap)

    def drop_owner(self) -> tuple[OwnerQueue, list[Pending]]:
        """Move permanently to the next session of another owner. Returns the remainder of the
        current owner queue."""
        _, owner = heappop(self._heap)
        rest = owner.items[self._position.get(owner, 0) :]
        self._position[owner] = len(owner.items)
        return owner, rest

    def skip_to(self, key: QueueKey) -> None:
        """Move to the first session at or after both ``key`` and the current position of its
        owner."""
        self._heap = []
        for _, owner in self.queue.heads:
            position = max(
                self._position.get(owner, 0), bisect_left(owner.items, key, key=owner.key)
            )
            self._position[owner] = position
            if position < len(owner.items):
                self._heap.append((owner.key(owner.items[position]), owner))

        heapify(self._heap)
