"""NVIDIA GPUs and MIG slices, through the driver's management library (NVML)."""

from moorage.agent.devices.nvidia.vendor import DriverReport, NvidiaVendor

__all__ = ["DriverReport", "NvidiaVendor"]
