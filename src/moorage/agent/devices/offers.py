"""Interface of inventories: the slots that a node offers."""

from __future__ import annotations

from typing import Protocol

from moorage.common.link.messages import SlotOffer


class Inventory(Protocol):
    def offers(self) -> tuple[SlotOffer, ...]:
        """The current offers. Does IO and may take some milliseconds: call it in a thread."""
        ...
