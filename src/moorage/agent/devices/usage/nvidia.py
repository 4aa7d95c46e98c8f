"""What NVIDIA GPUs and their slices are used for now, through the driver's management library (NVML).

What one driver or device does not tell is left out; nothing here is worth a failure. Does IO: call it in a
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from moorage.agent.devices.usage.rates import GpuSeen
from moorage.common.model.ids import DeviceId

T = TypeVar("T")
# Where the driver cannot tell what a process has, it gives the largest number that there is.
_UNTOLD = 1 << 62


class GpuMeter:
    """``nvml``: the library, initialised by whoever looks for devices with it; None: no GPUs."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._since: dict[DeviceId, int] = {}

    def measure(self, devices: Mapping[DeviceId, DeviceId]) -> dict[DeviceId, GpuSeen]:
        """``devices``: each with the device that it is a slice of, or ""."""
        found = {}
        for device_id, parent in devices.items():
            handle = self._tried(lambda d=device_id: self._nvml.nvmlDeviceGetHandleByUUID(d))
            memory = None if handle is None else self._memory(handle)
            if handle is not None and memory is not None:
                found[device_id] = self._seen(device_id, handle, memory, whole=not parent)
        return found

    def _seen(self, device_id: DeviceId, handle: Any, memory: Any, *, whole: bool) -> GpuSeen:
        nvml = self._nvml
        rates = self._tried(lambda: nvml.nvmlDeviceGetUtilizationRates(handle)) if whole else None
        degrees = self._tried(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        power = self._tried(lambda: nvml.nvmlDeviceGetPowerUsage(handle)) if whole else None
        return GpuSeen(
            device_id,
            int(memory.used),
            int(memory.total),
            None if rates is None else int(rates.gpu) * 10,
            by_pid=self.processes(handle),
            busy_by_pid=self._busy(device_id, handle) if whole else None,
            temperature=None if degrees is None else int(degrees),
            power=None if power is None else int(power),
        )

    def _memory(self, handle: Any) -> Any:
        """Without what the driver keeps for itself, where it tells that apart."""
        newer = getattr(self._nvml, "nvmlMemory_v2", None)
        if newer is not None:
            found = self._tried(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle, newer))
            if found is not None:
                return found
        return self._tried(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle))

    def processes(self, handle: Any) -> dict[int, int | None]:
        """Memory by process, of computing and of drawing ones."""
        found: dict[int, int | None] = {}
        for ask in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            for one in self._tried(lambda name=ask: getattr(self._nvml, name)(handle)) or ():
                has = one.usedGpuMemory
                found[int(one.pid)] = None if has is None or has >= _UNTOLD else int(has)
        return found

    def _busy(self, device_id: DeviceId, handle: Any) -> dict[int, int] | None:
        """Of the processes that did something since the last look, the newest sample each."""
        samples = self._tried(
            lambda: self._nvml.nvmlDeviceGetProcessUtilization(handle, self._since.get(device_id, 0))
        )
        if not samples:
            return None
        newest = {int(s.pid): s for s in sorted(samples, key=lambda s: s.timeStamp) if s.pid}
        self._since[device_id] = max((int(s.timeStamp) for s in newest.values()), default=0)
        return {pid: int(sample.smUtil) * 10 for pid, sample in newest.items()}

    def _tried(self, ask: Callable[..., T]) -> T | None:
        try:
            return ask()
        except self._nvml.NVMLError:
            return None
