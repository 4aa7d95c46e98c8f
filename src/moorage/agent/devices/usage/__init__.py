"""What kernels and devices use: measured now and then, told to the manager, never waited for."""

from moorage.agent.devices.usage.sampler import Sampler

__all__ = ["Sampler"]
