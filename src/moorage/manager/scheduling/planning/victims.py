"""Victim sets: the fewest sessions whose end frees enough, and among sets of equal size the first
by the victim order.

``fewest_victims`` is exact as long as its trials suffice. Beyond that, the set may not be the
smallest, but every session in it is necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moorage.common.model.ids import SessionId
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, Demand
from moorage.manager.scheduling.core.model import Running
from moorage.manager.scheduling.placement.free_capacity import KERNELS, FreeCapacity


class VictimCandidate(NamedTuple):
    """Session that may be stopped. ``position``: its place in the victim order over all agents; the
    first is stopped first. ``owner``: the owner for whose sessions it may be stopped; None means
    anyone's. ``kernels``: kernels that it would free, by the rank of their node."""

    position: int
    session_id: SessionId
    priority: int
    owner: str | None
    kernels: dict[int, list[Running]]


class Trials:
    """Number of sets that a search may still try for one request."""

    def __init__(self, left: int) -> None:
        self.left = left


Suffices = Callable[[Sequence[VictimCandidate]], bool]


def release(capacity: FreeCapacity, candidate: VictimCandidate, rank: int) -> None:
    """Free the resources that ``candidate`` holds on the node ``rank``."""
    for running in candidate.kernels.get(rank, ()):
        capacity.release(running.allocations)


def victim_cost(victims: Sequence[VictimCandidate]) -> tuple[int, list[int]]:
    """Cost of a set; the lowest is best. Fewer victims are better, then earlier ones, comparing the
    last victims of the sets first."""
    return len(victims), sorted((victim.position for victim in victims), reverse=True)


def first_victims(
    candidates: Sequence[VictimCandidate], suffices: Suffices
) -> list[VictimCandidate] | None:
    """The first set by the victim order alone, without unneeded sessions; None if all
    ``candidates`` (in the victim order) do not suffice."""
    low = 0
    high = len(candidates)
    if not suffices(candidates):
        return None

    while low < high:  # the shortest prefix that suffices: its last session is needed in any case
        middle = (low + high) // 2
        if suffices(candidates[:middle]):
            high = middle
        else:
            low = middle + 1

    return spare(candidates[:low], suffices)


def spare(victims: Sequence[VictimCandidate], suffices: Suffices) -> list[VictimCandidate]:
    """``victims`` (in the victim order) without those that are not needed; the last ones are spared
    first."""
    kept = list(victims)
    for victim in reversed(victims):
        rest = [other for other in kept if other is not victim]
        if suffices(rest):
            kept = rest
    return kept


def fewest_victims(
    candidates: Sequence[VictimCandidate], suffices: Suffices, counts: range, trials: Trials
) -> list[VictimCandidate] | None:
    """The best set by ``victim_cost`` among those whose size is one of ``counts``. ``candidates``:
    in the victim order."""

    def search(
        count: int, below: int, chosen: tuple[VictimCandidate, ...]
    ) -> tuple[VictimCandidate, ...] | None:
        """Search for a set of ``chosen`` and ``count`` more of ``candidates[:below]``, namely the
        one whose last session comes first."""
        for last in range(count - 1, below):
            if not trials.left:
                return None

            trials.left -= 1
            now = (*chosen, candidates[last])
            if not suffices(now if count == 1 else (*now, *candidates[:last])):
                continue

            found = now if count == 1 else search(count - 1, last, now)
            if found is not None:
                return found

        return None

    for count in counts:
        found = search(count, len(candidates), ())
        if found is not None:
            return list(found)

    return None


def least_count(
    capacity: FreeCapacity, demands: Sequence[Demand], gains: Callable[[str], Sequence[int]]
) -> int:
    """Minimum number of victims with which ``demands`` may fit on a node with ``capacity``.
    Considers each slot separately.

    ``gains``: what each candidate may free of a slot (see ``gains_of``), largest first."""
    least = 1
    needed: dict[str, int] = {}
    for demand in demands:
        for slot, amount in demand:
            needed[slot] = needed.get(slot, 0) + _countable(slot, amount)

    for slot, amount in needed.items():
        lacking = amount - _countable(slot, capacity.free.get(slot, 0))
        count = 0
        if lacking <= 0:
            continue

        for gain in gains(slot):
            count += 1
            lacking -= gain
            if lacking <= 0:
                break

        least = max(least, count)

    return least


def gains_of(candidates: Sequence[VictimCandidate], slot: str, rank: int) -> list[int]:
    """How much of ``slot`` each of them may free at most on the node ``rank``, largest first."""
    return sorted((_frees(candidate, slot, rank) for candidate in candidates), reverse=True)


def _countable(slot: str, amount: int) -> int:
    """Count only whole devices, because several fractions may share one device."""
    return amount // WHOLE_DEVICE if slot.endswith(SHARES_SUFFIX) else amount


def _frees(candidate: VictimCandidate, slot: str, rank: int) -> int:
    """How much of ``slot`` it may free at most: every device of which it holds a share."""
    kernels = candidate.kernels.get(rank, ())
    if slot == KERNELS:
        return len(kernels)

    family = (
        slot.removesuffix(SHARES_SUFFIX) + DEVICE_SUFFIX if slot.endswith(SHARES_SUFFIX) else ""
    )
    held = [allocation for running in kernels for allocation in running.allocations]
    if family:
        return len({allocation.device_id for allocation in held if allocation.slot == family})

    return sum(allocation.amount for allocation in held if allocation.slot == slot)
