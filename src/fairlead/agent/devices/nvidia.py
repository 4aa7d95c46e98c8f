"""NVIDIA's GPUs and their slices as a ``Vendor``."""

from __future__ import annotations

from typing import Any

from fairlead.agent.devices.nvidia_health import NvidiaHealth
from fairlead.agent.devices.vendor import Asked
from fairlead.agent.inventory.nvidia import NvidiaInventory, load_nvml
from fairlead.agent.usage.gpus import GpuMeter
from fairlead.agent.usage.rates import GpuSeen
from fairlead.common.ids import DeviceId
from fairlead.common.messages import SlotOffer


class Nvidia:
    """``nvml``: the driver's library; left out, the one that is installed, if any."""

    name = "nvidia"

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml or load_nvml()
        self._inventory = NvidiaInventory(self._nvml)
        self._meter, self._health = GpuMeter(self._nvml), NvidiaHealth(self._nvml)

    def offers(self) -> tuple[SlotOffer, ...]:
        return self._inventory.offers()

    def measure(self, devices: Asked) -> dict[DeviceId, GpuSeen]:
        return self._meter.measure(devices)

    def ailing(self, devices: Asked) -> dict[DeviceId, str]:
        return self._health.look(devices)

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        # Every kernel has it already, from ``engines.base``.
        return {}
