"""Interface that a device vendor implements, and the measurements that it returns.

The NVIDIA implementation is in ``nvidia/``. Other vendors are installed as packages with an entry
point (``plugins``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId

# Device ids, each with the id of the device it is a slice of ("" for a whole device).
DeviceParents = Mapping[DeviceId, DeviceId]


@dataclass(frozen=True, slots=True)
class DeviceMeasurement:
    """Current use of one device or slice.

    ``memory_used`` and ``memory_total`` in bytes. ``utilization`` in 1/1000 of the device; None if
    the driver does not report it. ``memory_by_pid``: bytes per process, None for a process whose
    share is unknown. ``utilization_by_pid``: 1/1000 per process that was active since the last
    measurement. ``temperature`` in degrees Celsius, ``power`` in milliwatts. ``slowed_by``: what
    currently lowers the device's clocks, such as ``hardware-thermal``.
    """

    device_id: DeviceId
    memory_used: int
    memory_total: int
    utilization: int | None = None
    memory_by_pid: Mapping[int, int | None] = field(default_factory=dict)
    utilization_by_pid: Mapping[int, int] | None = None
    temperature: int | None = None
    power: int | None = None
    slowed_by: tuple[str, ...] = ()


class DeviceMeter(Protocol):
    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        """Measure devices. Called in a thread."""
        ...


class VendorFailed(Exception):
    """A vendor's code failed. The message is meant for operators."""


class Vendor(Protocol):
    """A vendor of devices. It is called from worker threads, one call at a time, and may do IO."""

    name: str

    def offers(self) -> tuple[SlotOffer, ...]:
        """This node's devices, in slots named ``<family>.device`` with capacity 1000 and a stable
        device id. A previously offered device that now fails stays in the list with
        ``healthy=False``."""
        ...

    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        """The current use of these devices. Devices that cannot be measured are left out."""
        ...

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        """The devices on which nothing should be started, with the reason."""
        ...

    def environment(self, devices: tuple[DeviceId, ...]) -> dict[str, str]:
        """Environment variables that make exactly these devices visible to a process. If
        ``devices`` is empty, they hide all of the vendor's devices."""
        ...
