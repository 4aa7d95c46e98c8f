"""Usage of kernels, devices and the node, sampled periodically and sent to the manager."""

from moorage.agent.devices.usage.sampler import RunningKernel, UsageSampler

__all__ = ["RunningKernel", "UsageSampler"]
