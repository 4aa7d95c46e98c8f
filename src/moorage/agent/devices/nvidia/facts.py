"""Facts about the NVIDIA driver and its GPUs, for the agent's labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage.agent.devices.labels import DriverFacts
from moorage.agent.devices.nvidia.driver import DriverFailed, NvidiaDriver
from moorage.agent.devices.nvidia.nvml import query_or_none
from moorage.common.model.ids import DeviceId


def read_facts(driver: NvidiaDriver, gpus: Iterable[DeviceId], before: DriverFacts) -> DriverFacts:
    """Read the driver's facts. Return ``before`` if the driver fails. Known facts about a failed
    GPU are kept."""
    try:
        nvml = driver.open()
    except DriverFailed:
        return before

    cuda = query_or_none(nvml, lambda: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))
    found = {str(gpu): _compute_capability(nvml, gpu) for gpu in gpus}
    return DriverFacts(
        driver=driver_version(nvml),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        compute={
            **before.compute,
            **{gpu: capability for gpu, capability in found.items() if capability},
        },
    )


def driver_version(nvml: Any) -> str:
    """The driver version, like 580.159.04; empty if unknown."""
    return query_or_none(nvml, lambda: str(nvml.nvmlSystemGetDriverVersion())) or ""


def _compute_capability(nvml: Any, gpu: DeviceId) -> str:
    """A GPU's compute capability, like 9.0; empty if unknown."""
    handle = query_or_none(nvml, lambda: nvml.nvmlDeviceGetHandleByUUID(gpu))
    if handle is None:
        return ""
    found = query_or_none(nvml, lambda: nvml.nvmlDeviceGetCudaComputeCapability(handle))
    return "" if found is None else f"{found[0]}.{found[1]}"
