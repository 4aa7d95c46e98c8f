"""The node's devices: inventory, health, usage, and the interface for device vendors."""

from moorage.agent.devices.health.fences import FencedInventory
from moorage.agent.devices.health.memory_release import MemoryReleaseCheck
from moorage.agent.devices.health.monitor import DeviceHealthMonitor
from moorage.agent.devices.inventory import load_inventory
from moorage.agent.devices.manager import DeviceManager
from moorage.agent.devices.nvidia import NvidiaVendor
from moorage.agent.devices.plugins import installed_vendors
from moorage.agent.devices.vendor import DeviceMeasurement, Vendor, VendorFailed

__all__ = [
    "DeviceHealthMonitor",
    "DeviceManager",
    "DeviceMeasurement",
    "FencedInventory",
    "MemoryReleaseCheck",
    "NvidiaVendor",
    "Vendor",
    "VendorFailed",
    "installed_vendors",
    "load_inventory",
]
