"""What a node has to offer: the seam behind real nodes and pretended ones."""

from __future__ import annotations

from typing import Protocol

from moorage.common.link.messages import SlotOffer


class Inventory(Protocol):
    def offers(self) -> tuple[SlotOffer, ...]:
        """Look now. May take some milliseconds and does IO: call it in a thread."""
        ...


class Sum:
    """Several inventories as one."""

    def __init__(self, *parts: Inventory) -> None:
        self._parts = parts

    def offers(self) -> tuple[SlotOffer, ...]:
        return tuple(offer for part in self._parts for offer in part.offers())
