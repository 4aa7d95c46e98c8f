"""NVIDIA's GPUs and their slices as a ``Vendor``."""

from __future__ import annotations

from typing import Any

from moorage.agent.devices.health.nvidia import NvidiaHealth
from moorage.agent.devices.inventory.nvidia import NvidiaInventory
from moorage.agent.devices.usage.nvidia import GpuMeter
from moorage.agent.devices.usage.rates import GpuSeen
from moorage.agent.devices.vendor import Asked
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId


class Nvidia:
    """``nvml``: the driver's library; left out, the one of this node, as soon as there is one."""

    name = "nvidia"

    def __init__(self, nvml: Any = None) -> None:
        self._inventory = NvidiaInventory(nvml)
        self._meter: GpuMeter | None = None
        self._health: NvidiaHealth | None = None

    def offers(self) -> tuple[SlotOffer, ...]:
        found = self._inventory.offers()
        if self._meter is None and self._inventory.nvml is not None:
            self._meter, self._health = GpuMeter(self._inventory.nvml), NvidiaHealth(self._inventory.nvml)
        return found

    def measure(self, devices: Asked) -> dict[DeviceId, GpuSeen]:
        return self._meter.measure(devices) if self._meter is not None else {}

    def ailing(self, devices: Asked) -> dict[DeviceId, str]:
        return self._health.look(devices) if self._health is not None else {}

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        # Every kernel has it already, from ``engines.base``.
        return {}
