"""Only some of a node's devices, in the order in which they were named."""

from __future__ import annotations

from itertools import groupby

from moorage.agent.devices.inventory.base import Inventory
from moorage.common.link.messages import SlotOffer
from moorage.common.model.errors import ConfigError
from moorage.common.model.ids import DeviceId


class Chosen:
    """``names``: indexes and ids of GPUs, like ``"0, 2"`` or ``"GPU-7c5e..., 1"``; one named twice counts
    once. By its index a GPU in slices is named with all of them; a slice by its id alone.

    Looks at once. Raises ``ConfigError`` for a name that is none of the devices here.
    """

    def __init__(self, devices: Inventory, names: str) -> None:
        self._devices = devices
        there = _by_index(devices.offers())
        known = {offer.device_id: offer for offers in there for offer in offers}
        self._order: dict[DeviceId, None] = {}
        for name in (word.strip() for word in names.split(",")):
            if name.isdigit() and int(name) < len(there):
                self._order |= {offer.device_id: None for offer in there[int(name)]}
            elif name in known:
                self._order[DeviceId(name)] = None
            else:
                raise ConfigError(f"agent.gpus: {name!r} is no GPU of this node", next_step=_advice(there))

    def offers(self) -> tuple[SlotOffer, ...]:
        offers = self._devices.offers()
        now = {offer.device_id: offer for offer in offers}
        scalars = tuple(offer for offer in offers if not offer.device_id)
        return scalars + tuple(now[name] for name in self._order if name in now)


def _by_index(offers: tuple[SlotOffer, ...]) -> list[list[SlotOffer]]:
    """By the GPU that they are, or are a slice of."""
    devices = [offer for offer in offers if offer.device_id]
    return [list(group) for _, group in groupby(devices, key=lambda offer: offer.parent or offer.device_id)]


def _advice(there: list[list[SlotOffer]]) -> str:
    if not there:
        return "none answers here: look at nvidia-smi, or leave agent.gpus out"
    ids = ", ".join(f"{index} = {group[0].parent or group[0].device_id}" for index, group in enumerate(there))
    return f"name them by index or id: {ids}"
