"""Whether devices may be given out: their health, and that what ran there before has let go of them."""

from fairlead.agent.devices.gate import Gate
from fairlead.agent.devices.node import Care, Devices
from fairlead.agent.devices.nvidia import Nvidia
from fairlead.agent.devices.vendor import Vendor, VendorFailed, installed
from fairlead.agent.devices.watch import Fenced
from fairlead.agent.usage.rates import GpuSeen

__all__ = ["Care", "Devices", "Fenced", "Gate", "GpuSeen", "Nvidia", "Vendor", "VendorFailed", "installed"]
