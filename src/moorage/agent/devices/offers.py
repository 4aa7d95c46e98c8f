"""The inventory interface: the slots that a node offers."""

from __future__ import annotations

from typing import Protocol

from moorage.common.link.messages import SlotOffer


class Inventory(Protocol):
    def offers(self) -> tuple[SlotOffer, ...]:
        """The current offers. This does IO and may take a few milliseconds: call it in a thread."""
        ...
