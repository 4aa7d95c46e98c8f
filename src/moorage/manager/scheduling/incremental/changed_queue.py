"""Changed queue: the sessions that an incremental pass has to examine, in order."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush

from moorage.common.model.reasons import Reason
from moorage.manager.scheduling.core.model import Pending
from moorage.manager.scheduling.core.order import OVERDUE
from moorage.manager.scheduling.core.shape import Shape
from moorage.manager.scheduling.incremental.pending_index import (
    OwnerQueue,
    PendingIndex,
    QueueKey,
    ShapeCursor,
    ShapeQueue,
)
from moorage.manager.scheduling.placement.node_pool import NodePool
from moorage.manager.scheduling.planning.refusal_cache import RefusalCache
from moorage.manager.scheduling.planning.scheduling_pass import SchedulingPass

_Entry = tuple[QueueKey, ShapeQueue]
# Sorts after the keys of all overdue sessions and before all others.
_NOT_OVERDUE = (OVERDUE + 1,)


class ChangedQueue:
    """Queue of one pass: skips sessions that would get the same hold as the previous one.

    Merges two heaps of shape queues by their next session. ``_open_heap``: shapes that may be
    placed. ``_blocked_heap``: shapes that capacity refused, needed only until enough overdue
    sessions have reservations and the pass has a head: the first refused session that is not
    overdue. ``individual``: by key, the sessions whose outcome no other session shares; each is
    examined.
    """

    def __init__(
        self,
        index: PendingIndex,
        opened: Collection[Shape],
        *,
        individual: Sequence[tuple[QueueKey, Pending]],
        pool: NodePool,
        refusals: RefusalCache,
        scheduling_pass: SchedulingPass,
    ) -> None:
        self._index = index
        self._opened = opened
        self._pool = pool
        self._refusals = refusals
        self._pass = scheduling_pass
        self._individual = deque(individual)
        self._live = set(opened)  # the opened shapes that may still be placed
        queues = [queue for shape in opened for queue in index.queues_of[shape]]
        self._open_heap: list[_Entry] = [
            (queue.head, queue) for queue in queues if queue.head is not None
        ]
        heapify(self._open_heap)
        self._blocked_heap: list[_Entry] = []
        self._cursors: dict[ShapeQueue, ShapeCursor] = {}
        self._next_head = 0  # position in the index's heads, for ``_find_blocked``
        self._was_placed = False

        # Owner queues that are over quota, each from its first refused session on.
        self.over_quota: list[tuple[OwnerQueue, list[Pending]]] = []

    def placed(self, item: Pending) -> None:
        self._was_placed = True

    def __iter__(self) -> Iterator[Pending]:
        # sessions that guards refused: a changed reservation may admit others
        denied: list[ShapeCursor] = []
        while True:
            blocked = self._find_blocked()
            heaps = (blocked, self._open_heap) if blocked or self._is_wanted() else ()
            first = min((heap[0][0] for heap in heaps if heap), default=None)
            version = self._pass.reserved.version
            self._was_placed = False
            if self._individual and (first is None or self._individual[0][0] < first):
                key, item = self._individual.popleft()
                yield item
            elif first is None:
                return
            else:
                heap = self._blocked_heap if blocked and blocked[0][0] == first else self._open_heap
                key, queue = heappop(heap)
                cursor = self._cursor(key, queue, heap)
                if cursor is None:
                    continue

                yield cursor.item
                if self._was_placed:
                    cursor.advance()
                    self._push(heap, cursor)
                elif self._after_hold(cursor, heap):
                    denied.append(cursor)

            if self._was_placed:
                self._close_shapes()

            if self._pass.reserved.version != version:
                for cursor in denied:
                    cursor.skip_to(key)
                    self._push(self._open_heap, cursor)

                denied = []

    def _cursor(self, key: QueueKey, queue: ShapeQueue, heap: list[_Entry]) -> ShapeCursor | None:
        """Cursor of a shape, or None if the shape has since been refused. A refused shape matters
        only for determining which sessions are blocked."""
        if heap is self._open_heap and queue.shape not in self._live:
            refusal = self._refusals.get(queue.shape)
            if refusal is None or refusal.is_capacity:
                if not self._pass.blocked.blocks_nobody(queue.shape):
                    heappush(self._blocked_heap, (key, queue))
                return None

        cursor = self._cursors.get(queue)
        if cursor is None:
            cursor = self._cursors[queue] = ShapeCursor(queue)

        return cursor

    def _after_hold(self, cursor: ShapeCursor, heap: list[_Entry]) -> bool:
        """Move past a session that was not placed. Returns whether guards refused it."""
        hold = self._pass.holds.details[-1]
        if hold.unmet:
            self.over_quota.append(cursor.drop_owner())
            self._push(heap, cursor)
            return False

        cursor.owner.last_hold = None
        cursor.advance()
        queue = cursor.queue
        refusal = self._refusals.get(queue.shape)
        if refusal is not None and not refusal.unchecked:
            self._live.discard(queue.shape)
        # The next overdue session of a refused shape may also get a reservation.
        if queue.overdue and hold.capacity and not self._pass.blocked.blocks_nobody(queue.shape):
            self._push(self._blocked_heap, cursor)

        return hold.reason is Reason.RESERVED

    def _push(self, heap: list[_Entry], cursor: ShapeCursor) -> None:
        if cursor:
            heappush(heap, (cursor.key, cursor.queue))

    def _find_blocked(self) -> Sequence[_Entry]:
        """Heap of the shapes refused for capacity, with the first session that the pass needs to
        see: an overdue one that may get a reservation, or the one that becomes the head.

        Empty if the pass needs none."""
        blocked = self._pass.blocked
        has_head = self._pass.head.session is not None
        heads = self._index.heads
        heap = self._blocked_heap
        if not blocked.may_hold:
            self._next_head = max(self._next_head, bisect_left(heads, (_NOT_OVERDUE,)))
            while heap and heap[0][1].overdue:
                heappop(heap)

        while self._next_head < len(heads) and not (
            heap and heap[0][0] < heads[self._next_head][0]
        ):
            key, queue = heads[self._next_head]
            if has_head and not queue.overdue:
                break

            self._next_head += 1
            if queue.shape not in self._opened and not blocked.blocks_nobody(queue.shape):
                refusal = self._refusals.get(queue.shape)
                if refusal is not None and refusal.is_capacity:
                    heappush(heap, (key, queue))

        return () if has_head and heap and not heap[0][1].overdue else heap

    def _is_wanted(self) -> bool:
        """Whether the pass needs to see more of ``_open_heap``."""
        if not self._open_heap:
            return False
        may_hold = self._pass.blocked.may_hold and self._open_heap[0][1].overdue
        return bool(self._live) or may_hold or self._pass.head.session is None

    def _close_shapes(self) -> None:
        """Refuse the shapes again for which the changed nodes have no capacity left."""
        for shape in list(self._live):
            changed = self._refusals.nodes_to_try(shape)
            if changed is not None:
                demand = self._pool.request(shape).demand
                for node in changed:
                    if node.fits(demand):
                        break
                else:
                    self._refusals.restore(shape)
                    self._live.discard(shape)
