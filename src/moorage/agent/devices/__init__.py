"""Whether devices may be given out: their health, and that what ran there before has let go of them."""

from moorage.agent.devices.gate import Gate
from moorage.agent.devices.node import Care, Devices
from moorage.agent.devices.nvidia import Nvidia
from moorage.agent.devices.vendor import Vendor, VendorFailed, installed
from moorage.agent.devices.watch import Fenced
from moorage.agent.usage.rates import GpuSeen

__all__ = ["Care", "Devices", "Fenced", "Gate", "GpuSeen", "Nvidia", "Vendor", "VendorFailed", "installed"]
