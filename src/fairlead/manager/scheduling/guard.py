"""What a reservation leaves to those behind it on the agents that are kept."""

from __future__ import annotations

from fairlead.common.ids import SessionId
from fairlead.manager.scheduling.demand import DEVICE, SHARES, Demand
from fairlead.manager.scheduling.future import fit_all
from fairlead.manager.scheduling.stock import Room, Stock, Takes


class Guard:
    """``stock``: what will be free on ``room`` when the session starts (at ``starts``, unix microseconds), or
    what is free now if nobody knows when that is (None). ``demands``: what it needs there."""

    __slots__ = ("_fits", "_fraction", "asked", "demands", "room", "session_id", "starts", "stock")

    def __init__(
        self,
        session_id: SessionId,
        room: Room,
        starts: int | None,
        demands: tuple[Demand, ...],
        stock: Stock,
        fraction: str,
    ) -> None:
        self.session_id, self.room, self.starts = session_id, room, starts
        self.demands, self.stock, self._fraction = demands, stock, fraction
        self.asked: dict[str, int] = {}
        for demand in demands:
            for slot, amount in demand:
                self.asked[slot] = self.asked.get(slot, 0) + amount
        self._fits = fit_all(stock, demands, fraction)

    def in_time(self, ends: int | None) -> bool:
        return self.starts is not None and ends is not None and ends <= self.starts

    def permits(self, takes: Takes, ends: int | None, kernels: int) -> bool:
        """Whether it delays nothing that kernels take this from now until ``ends`` (None: nobody knows).

        It does not when it has ended by then, or when there is enough beside it. Where there is not enough
        in any case, it may take nothing of what is short.
        """
        if self.in_time(ends):
            return True
        after = self.stock.copy()
        after.take(takes, kernels)
        if self._fits:
            return fit_all(after, self.demands, self._fraction)
        slots = {_slot(take.slot) for take in takes} & self.asked.keys()
        return all(after.free.get(slot, 0) >= self.asked[slot] for slot in slots)

    def charge(self, takes: Takes, ends: int | None) -> None:
        """It was given, and is still there when the session starts."""
        if not self.in_time(ends):
            self.stock.take(takes)


def _slot(slot: str) -> str:
    return slot.removesuffix(DEVICE) + SHARES if slot.endswith(DEVICE) else slot
