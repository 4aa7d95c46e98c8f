"""Reservation guards: which other sessions may still start on a reserved node."""

from __future__ import annotations

from collections.abc import Callable

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, Demand
from moorage.manager.scheduling.placement.free_capacity import Allocations, FreeCapacity
from moorage.manager.scheduling.placement.node_state import NodeState


class ReservationGuard:
    """Protects the part of a reservation that is on one node.

    ``starts_at``: when the session starts (Unix microseconds), None if unknown. ``demands``: its
    needs on the node. ``capacity_at_start`` returns the capacity that will be free there at
    ``starts_at`` without the session (the free capacity now if unknown); it is called on the first
    request from another session.
    """

    __slots__ = (
        "_at_start",
        "_capacity_at_start",
        "_fraction",
        "demands",
        "node",
        "session_id",
        "starts_at",
    )

    def __init__(
        self,
        session_id: SessionId,
        node: NodeState,
        starts_at: int | None,
        demands: tuple[Demand, ...],
        *,
        capacity_at_start: Callable[[], FreeCapacity],
        fraction: str,
    ) -> None:
        self.session_id = session_id
        self.node = node
        self.starts_at = starts_at
        self.demands = demands
        self._fraction = fraction
        self._capacity_at_start = capacity_at_start
        self._at_start: tuple[FreeCapacity, bool] | None = None

    def _expected(self) -> tuple[FreeCapacity, bool]:
        """Capacity when the session starts, less the admitted allocations, and whether it sufficed
        before any were admitted."""
        if self._at_start is None:
            capacity = self._capacity_at_start()
            self._at_start = capacity, capacity.fits_all(self.demands, self._fraction)
        return self._at_start

    def ends_in_time(self, ends_at: int | None) -> bool:
        return self.starts_at is not None and ends_at is not None and ends_at <= self.starts_at

    def admits(self, allocations: Allocations, ends_at: int | None, kernels: int) -> bool:
        """Whether the session can still start in time if ``kernels`` kernels take ``allocations``
        from now until ``ends_at`` (None if unknown).

        They must end in time, or leave enough. If there is not enough for the session even without
        them, they may not use the scarce slots.
        """
        if self.ends_in_time(ends_at):
            return True

        capacity, sufficient = self._expected()
        after = capacity.copy()
        after.deduct(allocations, kernels)
        if sufficient:
            return after.fits_all(self.demands, self._fraction)

        needed: dict[str, int] = {}
        for demand in self.demands:
            for slot, amount in demand:
                needed[slot] = needed.get(slot, 0) + amount

        taken = {_in_shares(allocation.slot) for allocation in allocations} & needed.keys()
        return all(after.free.get(slot, 0) >= needed[slot] for slot in taken)

    def charge(self, allocations: Allocations, ends_at: int | None) -> None:
        """Account for admitted allocations that are still held when the session starts."""
        if not self.ends_in_time(ends_at):
            self._expected()[0].deduct(allocations)


def _in_shares(slot: str) -> str:
    return (
        slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX if slot.endswith(DEVICE_SUFFIX) else slot
    )
