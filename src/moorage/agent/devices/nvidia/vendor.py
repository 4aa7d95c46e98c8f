"""NVIDIA as a device ``Vendor``."""

from __future__ import annotations

from typing import Any

from moorage.agent.devices.nvidia.health import NvidiaHealth
from moorage.agent.devices.nvidia.inventory import NvidiaInventory
from moorage.agent.devices.nvidia.usage import NvidiaMeter
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId


class NvidiaVendor:
    """``nvml``: the library; by default that of this node, loaded as soon as a driver is installed."""

    name = "nvidia"

    def __init__(self, nvml: Any = None) -> None:
        self._inventory = NvidiaInventory(nvml)
        self._meter: NvidiaMeter | None = None
        self._health: NvidiaHealth | None = None

    def offers(self) -> tuple[SlotOffer, ...]:
        offers = self._inventory.offers()
        if self._meter is None and self._inventory.nvml is not None:
            self._meter, self._health = NvidiaMeter(self._inventory.nvml), NvidiaHealth(self._inventory.nvml)
        return offers

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        return self._meter.measure(devices) if self._meter is not None else {}

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        return self._health.check(devices) if self._health is not None else {}

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        # Nothing to add: ``engines.base`` sets CUDA_VISIBLE_DEVICES for every kernel.
        return {}
