"""Device selection: restricts an inventory to the GPUs named in ``agent.gpus``, in that order."""

from __future__ import annotations

from itertools import groupby

from moorage.agent.devices.offers import Inventory
from moorage.common.link.messages import SlotOffer
from moorage.common.model.errors import ConfigError
from moorage.common.model.ids import DeviceId


class SelectedDevices:
    """A selection of GPUs. ``names``: indexes and ids, like ``"0, 2"`` or ``"GPU-7c5e..., 1"``;
    duplicates are ignored. The index of a GPU in MIG mode selects all of its slices; a single slice
    is selected by its id.

    The constructor reads the inventory. Raises ``ConfigError`` for a name that matches no device.
    """

    def __init__(self, devices: Inventory, names: str) -> None:
        self._devices = devices
        by_index = _by_index(devices.offers())
        by_id = {offer.device_id: offer for offers in by_index for offer in offers}

        # A dict as an ordered set.
        self._selected: dict[DeviceId, None] = {}
        for name in (word.strip() for word in names.split(",")):
            if name.isdigit() and int(name) < len(by_index):
                self._selected |= {offer.device_id: None for offer in by_index[int(name)]}
            elif name in by_id:
                self._selected[DeviceId(name)] = None
            else:
                raise ConfigError(
                    f"agent.gpus: {name!r} is not a GPU of this node",
                    next_step=_next_step(by_index),
                )

    def offers(self) -> tuple[SlotOffer, ...]:
        offers = self._devices.offers()
        by_id = {offer.device_id: offer for offer in offers}
        scalars = tuple(offer for offer in offers if not offer.device_id)
        return scalars + tuple(
            by_id[device_id] for device_id in self._selected if device_id in by_id
        )


def _by_index(offers: tuple[SlotOffer, ...]) -> list[list[SlotOffer]]:
    """Device offers grouped by GPU, in the inventory's order. The slices of a GPU form one
    group."""
    devices = [offer for offer in offers if offer.device_id]
    return [
        list(group)
        for _, group in groupby(devices, key=lambda offer: offer.parent or offer.device_id)
    ]


def _next_step(by_index: list[list[SlotOffer]]) -> str:
    if not by_index:
        return "no GPU was found here: check nvidia-smi, or unset agent.gpus"
    failed = [offer for gpu in by_index for offer in gpu if offer.unhealthy_reason]
    if failed:
        return f"{failed[0].device_id}: {failed[0].unhealthy_reason}"
    ids = ", ".join(
        f"{index} = {gpu[0].parent or gpu[0].device_id}" for index, gpu in enumerate(by_index)
    )
    return f"use an index or id: {ids}"
