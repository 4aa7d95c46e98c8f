"""Usage of NVIDIA GPUs and slices. Values that a driver or device does not report are left out.

Measuring does IO: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from moorage.agent.devices.nvidia.nvml import query_or_none
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents
from moorage.common.model.ids import DeviceId

T = TypeVar("T")
# NVML reports the largest possible number if a process's memory is unknown.
_UNKNOWN_MEMORY = 1 << 62
_NOT_FOUND = 6  # NVML_ERROR_NOT_FOUND
# The nvmlClocksEventReasons bits for power and heat limits. The other bits mean an operator's
# choice, or idleness.
SLOWDOWNS = {
    0x04: "power-limit",
    0x08: "hardware-slowdown",
    0x20: "thermal",
    0x40: "hardware-thermal",
    0x80: "hardware-power-brake",
}


class NvidiaMeter:
    """A meter of NVIDIA GPUs. It remembers which samples of each process it has seen."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._last_sample_at: dict[DeviceId, int] = {}

    def measure(self, nvml: Any, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        """Measure devices. ``nvml``: the initialised library."""
        self._nvml = nvml
        measurements = {}
        for device_id, parent in devices.items():
            handle = self._query(lambda d=device_id: self._nvml.nvmlDeviceGetHandleByUUID(d))
            memory = None if handle is None else self._memory(handle)
            if handle is not None and memory is not None:
                measurements[device_id] = self._measure(
                    device_id, handle, memory, is_gpu=not parent
                )

        return measurements

    def _measure(
        self, device_id: DeviceId, handle: Any, memory: Any, *, is_gpu: bool
    ) -> DeviceMeasurement:
        nvml = self._nvml
        # NVML reports utilization and power for whole GPUs only, not for slices.
        rates = self._query(lambda: nvml.nvmlDeviceGetUtilizationRates(handle)) if is_gpu else None
        temperature = self._query(
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        )
        power = self._query(lambda: nvml.nvmlDeviceGetPowerUsage(handle)) if is_gpu else None

        return DeviceMeasurement(
            device_id,
            int(memory.used),
            int(memory.total),
            None if rates is None else int(rates.gpu) * 10,
            memory_by_pid=self._memory_by_pid(handle),
            utilization_by_pid=self._utilization_by_pid(device_id, handle) if is_gpu else None,
            temperature=None if temperature is None else int(temperature),
            power=None if power is None else int(power),
            slowed_by=self._slowed_by(handle) if is_gpu else (),
        )

    def _slowed_by(self, handle: Any) -> tuple[str, ...]:
        reasons = (
            self._query(lambda: self._nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)) or 0
        )
        return tuple(name for bit, name in SLOWDOWNS.items() if reasons & bit)

    def _memory(self, handle: Any) -> Any:
        """Memory in use, without the memory that the driver reserves, if the driver reports that
        separately."""
        version_2 = getattr(self._nvml, "nvmlMemory_v2", None)
        if version_2 is not None:
            memory = self._query(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle, version_2))
            if memory is not None:
                return memory
        return self._query(lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle))

    def _memory_by_pid(self, handle: Any) -> dict[int, int | None]:
        """The memory used by compute and graphics processes."""
        by_pid: dict[int, int | None] = {}
        for name in (
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetGraphicsRunningProcesses",
        ):
            for process in self._query(lambda name=name: getattr(self._nvml, name)(handle)) or ():
                memory = process.usedGpuMemory
                unknown = memory is None or memory >= _UNKNOWN_MEMORY
                by_pid[int(process.pid)] = None if unknown else int(memory)

        return by_pid

    def _utilization_by_pid(self, device_id: DeviceId, handle: Any) -> dict[int, int] | None:
        """The newest sample of each process that was active since the last measurement. NVML raises
        a specific error if there is none. Some drivers return unfilled entries."""
        since = self._last_sample_at.get(device_id, 0)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self._nvml.NVMLError as error:
            return {} if getattr(error, "value", None) == _NOT_FOUND else None

        filled = [s for s in samples if s.pid and s.timeStamp > since and s.smUtil <= 100]
        newest = {int(s.pid): s for s in sorted(filled, key=lambda s: s.timeStamp)}
        self._last_sample_at[device_id] = max(
            (int(s.timeStamp) for s in newest.values()), default=since
        )
        return {pid: int(sample.smUtil) * 10 for pid, sample in newest.items()}

    def _query(self, query: Callable[..., T]) -> T | None:
        return query_or_none(self._nvml, query)
