"""Queue order: which pending session a pass tries next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Protocol

from moorage.manager.scheduling.core.demand import in_shares
from moorage.manager.scheduling.core.model import AgentState, Pending
from moorage.manager.scheduling.core.policy import Policy

_by_queue_key = attrgetter("queue_key")
UNBOUNDED = 2**63


class PendingQueue(Protocol):
    """Yields each pending session once. The caller reports placements, because they may change
    which session is next."""

    def __iter__(self) -> Iterator[Pending]: ...

    def placed(self, item: Pending) -> None: ...


def is_overdue(item: Pending, policy: Policy, now: int) -> bool:
    """Whether the session has waited so long that no younger one may delay it any longer. ``now``:
    Unix microseconds."""
    if policy.max_bypasses is not None and item.bypassed >= policy.max_bypasses:
        return True
    return policy.max_skip_age is not None and now - item.queued_since >= policy.max_skip_age


# Sorts before the queue key of every session that is not overdue: priorities end at 100.
OVERDUE = -101


def overdue_key(item: Pending) -> tuple[int, int, str]:
    """Key of an overdue session: the order is by age, regardless of priority and strategy, so that
    no stream of other sessions, however important, can get ahead of it."""
    return OVERDUE, item.queued_since, item.session_id


def split_overdue(
    pending: Iterable[Pending], policy: Policy, now: int
) -> tuple[list[Pending], list[Pending]]:
    """The overdue sessions, oldest first, and the others in the order of their queue keys."""
    # Inlined ``is_overdue``: most plans have thousands of sessions, none of them overdue.
    since = -1 if policy.max_skip_age is None else now - policy.max_skip_age
    bypasses = UNBOUNDED if policy.max_bypasses is None else policy.max_bypasses
    ordered = sorted(pending, key=_by_queue_key)
    late = [item for item in ordered if item.queued_since <= since or item.bypassed >= bypasses]
    if not late:
        return [], ordered

    late.sort(key=overdue_key)
    names = {item.session_id for item in late}
    return late, [item for item in ordered if item.session_id not in names]


def sort_pending(pending: Iterable[Pending], policy: Policy, now: int = 0) -> list[Pending]:
    """Overdue sessions first, in the order of their age. The others are ordered by priority,
    highest first, then by age, oldest first (lifo: youngest first), then by id.

    With ``hol=skip``, a session that was refused for lack of capacity ``num_retries_to_skip`` times
    moves behind the others of the same priority, never behind another priority: it is tried later,
    not skipped.
    """
    late, ordered = split_overdue(pending, policy, now)
    if policy.strategy == "lifo":
        ordered.reverse()
        ordered.sort(key=lambda item: -item.priority)
    if policy.hol == "skip" and not policy.head_blocks:
        ordered.sort(key=lambda item: (-item.priority, item.retries >= policy.num_retries_to_skip))

    return late + ordered


class FixedQueue:
    """fifo and lifo: the order is known before the first session is tried."""

    def __init__(self, items: list[Pending]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._items)

    def placed(self, item: Pending) -> None:
        """Placements have no effect on the order."""


# Dominant shares are compared as integers; this value stands for all of a resource.
FULL_SHARE = 10**12


class FairShareQueue:
    """drf: dominant resource fairness by progressive filling (Ghodsi et al., NSDI 2011).

    Overdue sessions come first, oldest first. Then, within a priority, the owner with the smallest
    weighted dominant share is next, with its oldest session. A placement counts immediately. Ties
    go to the older session.
    """

    def __init__(
        self,
        items: Iterable[Pending],
        policy: Policy,
        capacity: Mapping[str, int],
        used: Mapping[str, Mapping[str, int]],
        *,
        now: int,
    ) -> None:
        self._policy = policy
        self._capacity = capacity
        self._overdue, self._items = split_overdue(items, policy, now)
        self._used = {owner: dict(slots) for owner, slots in used.items()}

    def owner(self, item: Pending) -> str:
        return item.project if self._policy.share_by == "project" else item.user

    def dominant_share(self, owner: str) -> int:
        used = self._used.get(owner, {})
        capacity = self._capacity
        weight = self._policy.weights.get(owner, 1)

        return max(
            (
                used[slot] * FULL_SHARE // (capacity[slot] * weight)
                for slot in used
                if capacity.get(slot)
            ),
            default=0,
        )

    def placed(self, item: Pending) -> None:
        used = self._used.setdefault(self.owner(item), {})
        for slot, amount in item.shape.total:
            used[slot] = used.get(slot, 0) + amount

    def __iter__(self) -> Iterator[Pending]:
        skip = self._policy.hol == "skip" and not self._policy.head_blocks
        yield from self._overdue
        rounds: dict[tuple[int, bool], dict[str, deque[Pending]]] = {}
        for item in self._items:
            skipped = skip and item.retries >= self._policy.num_retries_to_skip
            queues = rounds.setdefault((-item.priority, skipped), {})
            queues.setdefault(self.owner(item), deque()).append(item)
        for key in sorted(rounds):
            yield from self._fill(rounds[key])

    def _fill(self, queues: dict[str, deque[Pending]]) -> Iterator[Pending]:
        heap = [
            (self.dominant_share(owner), queue[0].queue_key, owner)
            for owner, queue in queues.items()
        ]
        heapify(heap)
        while heap:
            _, _, owner = heappop(heap)
            queue = queues[owner]
            yield queue.popleft()
            if queue:
                heappush(heap, (self.dominant_share(owner), queue[0].queue_key, owner))


def schedulable_capacity(agents: Iterable[AgentState]) -> dict[str, int]:
    """Capacity that owners share: the sum over schedulable agents."""
    total: dict[str, int] = {}
    for agent in agents:
        for slot, amount in agent.packed.capacity.items() if agent.schedulable else ():
            total[slot] = total.get(slot, 0) + amount
    return total


def usage_by_owner(agents: Iterable[AgentState], share_by: str) -> dict[str, dict[str, int]]:
    """The resources that each owner's running kernels hold."""
    usage: dict[str, dict[str, int]] = {}
    for agent in agents:
        for running in agent.running:
            used = usage.setdefault(running.project if share_by == "project" else running.user, {})
            for allocation in running.allocations:
                # A device's amount is already in shares.
                device = allocation.device_id
                slot = allocation.slot.replace(".device", ".shares") if device else allocation.slot
                used[slot] = used.get(slot, 0) + allocation.amount

    return usage


def pending_queue(
    items: Iterable[Pending],
    policy: Policy,
    agents: Iterable[AgentState],
    usage: Mapping[str, Mapping[str, int]] | None,
    *,
    now: int,
) -> PendingQueue:
    """Create the queue for the policy's strategy. ``usage``: see ``Snapshot``."""
    if policy.strategy != "drf":
        return FixedQueue(sort_pending(items, policy, now))

    agents = list(agents)
    used = usage_by_owner(agents, policy.share_by) if usage is None else usage
    by_owner = {owner: in_shares(slots) for owner, slots in used.items()}
    capacity = schedulable_capacity(agents)

    return FairShareQueue(items, policy, capacity=capacity, used=by_owner, now=now)
