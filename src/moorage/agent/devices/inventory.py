"""Node inventory: the slots that an agent offers, as configured by ``agent.inventory`` and ``agent.gpus``."""

from __future__ import annotations

import re
from typing import Protocol

from moorage.agent.devices.fake_inventory import FakeInventory
from moorage.agent.devices.host import HostInventory
from moorage.agent.devices.selection import SelectedDevices
from moorage.common.link.messages import SlotOffer
from moorage.common.model.errors import ConfigError, InvalidInput
from moorage.common.model.slots import parse_size

_FAKE = re.compile(r"fake:([0-9]{1,4})x([A-Za-z0-9][A-Za-z0-9_-]{0,31})(/nvlink)?")


class Inventory(Protocol):
    def offers(self) -> tuple[SlotOffer, ...]:
        """The current offers. Does IO and may take some milliseconds: call it in a thread."""
        ...


class CombinedInventory:
    """Several inventories as one."""

    def __init__(self, *parts: Inventory) -> None:
        self._parts = parts

    def offers(self) -> tuple[SlotOffer, ...]:
        return tuple(offer for part in self._parts for offer in part.offers())


def load_inventory(
    setting: str, devices: Inventory, *, gpus: str | None = None, reserved_mem: str = "0", owner: str = "node"
) -> Inventory:
    """The inventory for the settings ``agent.inventory``, ``agent.gpus`` and ``agent.reserved_mem``.
    ``devices``: the devices of this node. ``owner`` prefixes the device ids of a fake inventory. Raises
    ``ConfigError``."""
    if match := _FAKE.fullmatch(setting):
        fake = FakeInventory(int(match[1]), match[2], owner, nvlink=bool(match[3]))
        return fake if gpus is None else SelectedDevices(fake, gpus)
    if setting != "auto":
        raise ConfigError(
            f"agent.inventory = {setting!r} is not an inventory",
            next_step="use auto, or fake:NxMODEL like fake:8xH100 or fake:8xH100/nvlink",
        )
    try:
        reserved = parse_size(reserved_mem)
    except InvalidInput as error:
        raise ConfigError(f"agent.reserved_mem: {error.message}", next_step=error.next_step) from None
    return CombinedInventory(
        HostInventory(reserved), devices if gpus is None else SelectedDevices(devices, gpus)
    )
