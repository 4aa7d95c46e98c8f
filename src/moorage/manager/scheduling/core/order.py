"""Which session is tried next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Protocol

from moorage.manager.scheduling.core.demand import in_shares
from moorage.manager.scheduling.core.model import AgentState, Pending
from moorage.manager.scheduling.core.policy import Policy

_by_rank = attrgetter("queue_key")


class Line(Protocol):
    """Each pending session once. It is told who got a place, which may change who is next."""

    def __iter__(self) -> Iterator[Pending]: ...

    def placed(self, item: Pending) -> None: ...


def overdue(item: Pending, policy: Policy, now: int) -> bool:
    """Whether nobody may overtake it any more. ``now``: unix microseconds."""
    if policy.max_bypasses is not None and item.bypassed >= policy.max_bypasses:
        return True
    age = policy.max_skip_age
    return age is not None and item.retries > 0 and now - item.queued_since >= age


def order(pending: Iterable[Pending], policy: Policy, now: int = 0) -> list[Pending]:
    """Higher priority first, then older first (lifo: younger); the id makes it independent of rows' order.

    With ``hol=skip`` a session already refused ``num_retries_to_skip`` times for capacity goes behind the
    others of its own priority, never behind another priority: it is tried later, not left out. One that is
    overdue keeps its place.
    """
    ordered = sorted(pending, key=_by_rank)
    if policy.strategy == "lifo":
        ordered.reverse()
        ordered.sort(key=lambda item: -item.priority)
    if policy.hol == "skip" and not policy.head_blocks:
        ordered.sort(key=lambda item: (-item.priority, _skipped(item, policy, now)))
    return ordered


def _skipped(item: Pending, policy: Policy, now: int) -> bool:
    return item.retries >= policy.num_retries_to_skip and not overdue(item, policy, now)


class Fixed:
    """fifo and lifo: known before the first is tried."""

    def __init__(self, items: list[Pending]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._items)

    def placed(self, item: Pending) -> None:
        """Nothing changes."""


# Shares are compared as whole numbers: this many are all of a resource.
ALL = 10**12


class Filling:
    """drf: progressive filling. Of each priority, the owner with the smallest dominant share for its weight
    is next, with its oldest session; what is placed counts at once. Ties go to the older session."""

    def __init__(
        self,
        items: list[Pending],
        policy: Policy,
        capacity: Mapping[str, int],
        used: Mapping[str, Mapping[str, int]],
        now: int,
    ) -> None:
        self._policy, self._capacity, self._now = policy, capacity, now
        self._items = items
        self._used = {owner: dict(slots) for owner, slots in used.items()}

    def owner(self, item: Pending) -> str:
        return item.project if self._policy.share_by == "project" else item.user

    def share(self, owner: str) -> int:
        used, capacity = self._used.get(owner, {}), self._capacity
        weight = self._policy.weights.get(owner, 1)
        return max(
            (used[slot] * ALL // (capacity[slot] * weight) for slot in used if capacity.get(slot)), default=0
        )

    def placed(self, item: Pending) -> None:
        used = self._used.setdefault(self.owner(item), {})
        for slot, amount in item.shape.total:
            used[slot] = used.get(slot, 0) + amount

    def __iter__(self) -> Iterator[Pending]:
        skip = self._policy.hol == "skip" and not self._policy.head_blocks
        rounds: dict[tuple[int, bool], dict[str, deque[Pending]]] = {}
        for item in self._items:
            late = skip and _skipped(item, self._policy, self._now)
            queues = rounds.setdefault((-item.priority, late), {})
            queues.setdefault(self.owner(item), deque()).append(item)
        for name in sorted(rounds):
            yield from self._fill(rounds[name])

    def _fill(self, queues: dict[str, deque[Pending]]) -> Iterator[Pending]:
        heap = [(self.share(owner), queue[0].queue_key, owner) for owner, queue in queues.items()]
        heapify(heap)
        while heap:
            _, _, owner = heappop(heap)
            queue = queues[owner]
            yield queue.popleft()
            if queue:
                heappush(heap, (self.share(owner), queue[0].queue_key, owner))


def capacity_of(agents: Iterable[AgentState]) -> dict[str, int]:
    """What there is to share: of the agents that take work."""
    total: dict[str, int] = {}
    for agent in agents:
        for slot, amount in agent.packed.capacity.items() if agent.schedulable else ():
            total[slot] = total.get(slot, 0) + amount
    return total


def usage_of(agents: Iterable[AgentState], share_by: str) -> dict[str, dict[str, int]]:
    """What each owner holds, by what runs."""
    used: dict[str, dict[str, int]] = {}
    for agent in agents:
        for running in agent.running:
            mine = used.setdefault(running.project if share_by == "project" else running.user, {})
            for take in running.allocations:
                # A device's amount is in shares already.
                slot = take.slot.replace(".device", ".shares") if take.device_id else take.slot
                mine[slot] = mine.get(slot, 0) + take.amount
    return used


def line(
    items: Iterable[Pending],
    policy: Policy,
    agents: Iterable[AgentState],
    usage: Mapping[str, Mapping[str, int]] | None,
    now: int,
) -> Line:
    if policy.strategy != "drf":
        return Fixed(order(items, policy, now))
    agents = list(agents)
    used = usage_of(agents, policy.share_by) if usage is None else usage
    by_owner = {owner: in_shares(slots) for owner, slots in used.items()}
    return Filling(sorted(items, key=_by_rank), policy, capacity_of(agents), by_owner, now)
