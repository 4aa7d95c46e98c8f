"""What a reservation leaves to those behind it on the agents that are kept."""

from __future__ import annotations

from collections.abc import Callable

from moorage.common.model.ids import SessionId
from moorage.manager.scheduling.backfill.earliest_fit import fit_all
from moorage.manager.scheduling.core.demand import DEVICE_SUFFIX, SHARES_SUFFIX, Demand
from moorage.manager.scheduling.placement.free_capacity import FreeCapacity, NodeState, Takes


class ReservationGuard:
    """``stock``: what will be free on ``room`` when the session starts (at ``starts``, unix microseconds), or
    what is free now if nobody knows when that is (None). It is asked for when somebody would like to go
    there, and nothing can be taken there before. ``demands``: what it needs there."""

    __slots__ = ("_fraction", "_made", "_stock", "demands", "room", "session_id", "starts_at")

    def __init__(
        self,
        session_id: SessionId,
        room: NodeState,
        starts: int | None,
        demands: tuple[Demand, ...],
        stock: Callable[[], FreeCapacity],
        fraction: str,
    ) -> None:
        self.session_id, self.room, self.starts_at = session_id, room, starts
        self.demands, self._stock, self._fraction = demands, stock, fraction
        self._made: tuple[FreeCapacity, bool] | None = None

    def _look(self) -> tuple[FreeCapacity, bool]:
        """The stock, and whether there was enough in it from the beginning."""
        if self._made is None:
            stock = self._stock()
            self._made = stock, fit_all(stock, self.demands, self._fraction)
        return self._made

    def in_time(self, ends: int | None) -> bool:
        return self.starts_at is not None and ends is not None and ends <= self.starts_at

    def access_tokens(self, takes: Takes, ends: int | None, kernels: int) -> bool:
        """Whether it delays nothing that kernels take this from now until ``ends`` (None: nobody knows).

        It does not when it has ended by then, or when there is enough beside it. Where there is not enough
        in any case, it may take nothing of what is short.
        """
        if self.in_time(ends):
            return True
        stock, enough = self._look()
        after = stock.copy()
        after.take(takes, kernels)
        if enough:
            return fit_all(after, self.demands, self._fraction)
        asked: dict[str, int] = {}
        for demand in self.demands:
            for slot, amount in demand:
                asked[slot] = asked.get(slot, 0) + amount
        slots = {_slot(take.slot) for take in takes} & asked.keys()
        return all(after.free.get(slot, 0) >= asked[slot] for slot in slots)

    def charge(self, takes: Takes, ends: int | None) -> None:
        """It was given, and is still there when the session starts."""
        if not self.in_time(ends):
            self._look()[0].take(takes)


def _slot(slot: str) -> str:
    return slot.removesuffix(DEVICE_SUFFIX) + SHARES_SUFFIX if slot.endswith(DEVICE_SUFFIX) else slot
