"""Usage rates from counters, and per-minute aggregates of samples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.agent.devices.vendor import DeviceMeasurement
from moorage.agent.runtimes.base import Counters
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.resource_usage import MINUTE_S, KernelMinute, Use
from moorage.common.model.slots import WHOLE_DEVICE


def usage_between(
    before: Counters, now: Counters, seconds: float, gpu: tuple[int | None, int | None]
) -> Use:
    """The usage between two samples. ``gpu``: utilization in 1/1000 of a device, and memory in
    bytes. A counter that decreased was reset when the kernel restarted; its rate is 0."""
    return Use(
        cpu=max(0, round((now.cpu_us - before.cpu_us) / seconds / 1000)),
        memory=now.memory,
        rx=_rate(before.rx, now.rx, seconds),
        tx=_rate(before.tx, now.tx, seconds),
        gpu=gpu[0] if now.gpu is None else now.gpu,
        gpu_memory=gpu[1] if now.gpu_memory is None else now.gpu_memory,
    )


def _rate(before: int | None, now: int | None, seconds: float) -> int | None:
    return None if before is None or now is None else max(0, round((now - before) / seconds))


def kernel_device_usage(
    granted: Mapping[DeviceId, int],
    pids: Iterable[int],
    measurements: Mapping[DeviceId, DeviceMeasurement],
) -> tuple[int | None, int | None]:
    """Utilization (1/1000 of a device) and memory (bytes) of a kernel with these processes on its
    devices (``granted``: 1/1000 of each).

    If a driver reports other pids, or none (slices, containers), kernels cannot be distinguished.
    In that case, a device that belongs to one kernel is attributed to it entirely, and the use of a
    shared device is unknown.
    """
    kernel_pids = set(pids)
    utilization = _Total()
    memory = _Total()
    for device_id, amount in granted.items():
        device = measurements.get(device_id)
        if device is None:
            continue

        exclusive = amount >= WHOLE_DEVICE
        on_device = kernel_pids & device.memory_by_pid.keys()
        shares = [device.memory_by_pid[pid] for pid in on_device]
        known = [share for share in shares if share is not None]
        if len(known) == len(shares) and (shares or (not exclusive and device.memory_by_pid)):
            memory.add(sum(known))
        else:
            memory.add(device.memory_used if exclusive else None)

        if device.utilization_by_pid is not None and on_device and not exclusive:
            utilization.add(sum(device.utilization_by_pid.get(pid, 0) for pid in on_device))
        else:
            utilization.add(device.utilization if exclusive else None)

    return utilization.value, memory.value


class _Total:
    """The sum of the known values; None if no value is known."""

    def __init__(self) -> None:
        self.value: int | None = None

    def add(self, amount: int | None) -> None:
        if amount is not None:
            self.value = (self.value or 0) + amount


class MinuteAggregator:
    """Aggregates kernel samples by wall-clock minute."""

    def __init__(self) -> None:
        self._open: dict[KernelId, tuple[int, list[Use]]] = {}

    def add(self, kernel_id: KernelId, at: float, sample: Use) -> KernelMinute | None:
        """Add a sample; ``at`` is in unix seconds. Returns the previous minute if this sample
        starts a new one."""
        minute = int(at) // MINUTE_S * MINUTE_S
        current = self._open.get(kernel_id)
        if current is not None and current[0] == minute:
            current[1].append(sample)
            return None
        self._open[kernel_id] = minute, [sample]
        return None if current is None else _aggregate(kernel_id, *current)

    def drop(self, kernel_id: KernelId) -> KernelMinute | None:
        """Drop a kernel and return its last minute."""
        current = self._open.pop(kernel_id, None)
        return None if current is None else _aggregate(kernel_id, *current)


def _aggregate(kernel_id: KernelId, at: int, samples: list[Use]) -> KernelMinute:
    columns = [[getattr(sample, name) for sample in samples] for name in Use.__dataclass_fields__]
    known = [[value for value in column if value is not None] for column in columns]
    mean: list[Any] = [round(sum(column) / len(column)) if column else None for column in known]
    peak: list[Any] = [max(column, default=None) for column in known]
    return KernelMinute(kernel_id, at, samples=len(samples), mean=Use(*mean), peak=Use(*peak))
