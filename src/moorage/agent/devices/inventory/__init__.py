"""What this node offers."""

from __future__ import annotations

import re

from moorage.agent.devices.inventory.base import Inventory, Sum
from moorage.agent.devices.inventory.fake import FakeInventory
from moorage.agent.devices.inventory.host import NodeInventory
from moorage.agent.devices.inventory.nvidia import NvidiaInventory
from moorage.agent.devices.inventory.selection import Chosen
from moorage.common.model.errors import ConfigError, InvalidInput
from moorage.common.model.slots import parse_size

_FAKE = re.compile(r"^fake:([0-9]{1,4})x([A-Za-z0-9][A-Za-z0-9_-]{0,31})(/nvlink)?$")


def load(
    setting: str,
    *,
    gpus: str | None = None,
    reserved_mem: str = "0",
    owner: str = "node",
    devices: Inventory | None = None,
) -> Inventory:
    """From the settings of these names: ``agent.inventory``, ``agent.gpus``, ``agent.reserved_mem``.
    ``devices``: those of this node, NVIDIA's if left out. Raises ``ConfigError``."""
    if match := _FAKE.fullmatch(setting):
        pretended = FakeInventory(int(match[1]), match[2], owner, linked=bool(match[3]))
        return pretended if gpus is None else Chosen(pretended, gpus)
    if setting != "auto":
        raise ConfigError(
            f"agent.inventory = {setting!r} is not an inventory",
            next_step="write auto, or fake:NxMODEL like fake:8xH100 or fake:8xH100/nvlink",
        )
    try:
        reserved = parse_size(reserved_mem)
    except InvalidInput as error:
        raise ConfigError(f"agent.reserved_mem: {error.message}", next_step=error.next_step) from None
    devices = devices or NvidiaInventory()
    return Sum(NodeInventory(reserved), devices if gpus is None else Chosen(devices, gpus))


__all__ = ["Inventory", "load"]
