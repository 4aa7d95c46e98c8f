"""Whether devices may be given out: their health, and that what ran there before has let go of them."""

from moorage.agent.devices.health.memory_release import Gate
from moorage.agent.devices.health.monitor import Fenced
from moorage.agent.devices.manager import Care, Devices
from moorage.agent.devices.nvidia import Nvidia
from moorage.agent.devices.usage.rates import GpuSeen
from moorage.agent.devices.vendor import Vendor, VendorFailed, installed

__all__ = ["Care", "Devices", "Fenced", "Gate", "GpuSeen", "Nvidia", "Vendor", "VendorFailed", "installed"]
