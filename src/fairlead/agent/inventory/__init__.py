"""What this node offers."""

from __future__ import annotations

import re

from fairlead.agent.inventory.base import Inventory, Sum
from fairlead.agent.inventory.fake import FakeInventory
from fairlead.agent.inventory.node import NodeInventory
from fairlead.agent.inventory.nvidia import NvidiaInventory
from fairlead.common.errors import ConfigError, InvalidInput
from fairlead.common.slots import parse_size

_FAKE = re.compile(r"^fake:([0-9]{1,4})x([A-Za-z0-9][A-Za-z0-9_-]{0,31})$")


def load(setting: str, *, reserved_mem: str = "0", owner: str = "node") -> Inventory:
    """From ``agent.inventory`` and ``agent.reserved_mem``. Raises ``ConfigError``."""
    if match := _FAKE.fullmatch(setting):
        return FakeInventory(int(match[1]), match[2], owner)
    if setting != "auto":
        raise ConfigError(
            f"agent.inventory = {setting!r} is not an inventory",
            next_step="write auto, or fake:NxMODEL like fake:8xH100",
        )
    try:
        reserved = parse_size(reserved_mem)
    except InvalidInput as error:
        raise ConfigError(f"agent.reserved_mem: {error.message}", next_step=error.next_step) from None
    return Sum(NodeInventory(reserved), NvidiaInventory())


__all__ = ["Inventory", "load"]
