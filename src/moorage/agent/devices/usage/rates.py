"""From counters to what is used per second, and from samples to minutes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.agent.runtimes.base import Counters
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.slots import WHOLE_DEVICE
from moorage.common.model.usage import MINUTE_S, KernelMinute, Use


@dataclass(frozen=True, slots=True)
class GpuSeen:
    """One device or slice. ``busy`` in 1/1000 of it, None where the driver does not say. ``by_pid``: memory
    in bytes of each process there, None where only that it is there is known; ``busy_by_pid``: likewise, of
    those that did something."""

    device_id: DeviceId
    memory: int
    total: int
    busy: int | None = None
    by_pid: Mapping[int, int | None] = field(default_factory=dict)
    busy_by_pid: Mapping[int, int] | None = None
    temperature: int | None = None
    power: int | None = None


def use(before: Counters, now: Counters, seconds: float, gpu: tuple[int | None, int | None]) -> Use:
    """``gpu``: busy (1/1000 of a device) and memory. Counters that have fallen are those of another life of
    the kernel: nothing is known of the time between."""
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


def attribute(
    granted: Mapping[DeviceId, int], pids: Iterable[int], gpus: Mapping[DeviceId, GpuSeen]
) -> tuple[int | None, int | None]:
    """What a kernel with these processes uses of its devices (``granted``: in 1/1000): busy, and memory.

    A driver that sees other process numbers than we do, or none (slices, containers), cannot tell kernels
    apart: then a device that is a kernel's own is counted whole, and of a shared one nothing is known.
    """
    mine, busy, memory = set(pids), _Total(), _Total()
    for device_id, amount in granted.items():
        gpu = gpus.get(device_id)
        if gpu is None:
            continue
        alone = amount >= WHOLE_DEVICE
        here = mine & gpu.by_pid.keys()
        shares = [gpu.by_pid[pid] for pid in here]
        told = [share for share in shares if share is not None]
        if len(told) == len(shares) and (shares or (not alone and gpu.by_pid)):
            memory.add(sum(told))
        else:
            memory.add(gpu.memory if alone else None)
        if gpu.busy_by_pid is not None and here and not alone:
            busy.add(sum(gpu.busy_by_pid.get(pid, 0) for pid in here))
        else:
            busy.add(gpu.busy if alone else None)
    return busy.value, memory.value


class _Total:
    """A sum of what is known; None while nothing is."""

    def __init__(self) -> None:
        self.value: int | None = None

    def add(self, amount: int | None) -> None:
        if amount is not None:
            self.value = (self.value or 0) + amount


class Minutes:
    """Samples of kernels, summed up by the minute of the wall clock."""

    def __init__(self) -> None:
        self._open: dict[KernelId, tuple[int, list[Use]]] = {}

    def add(self, kernel_id: KernelId, at: float, sample: Use) -> KernelMinute | None:
        """Returns the minute that this sample has ended."""
        minute = int(at) // MINUTE_S * MINUTE_S
        begun = self._open.get(kernel_id)
        if begun is not None and begun[0] == minute:
            begun[1].append(sample)
            return None
        self._open[kernel_id] = minute, [sample]
        return None if begun is None else _minute(kernel_id, *begun)

    def keep(self, kernels: Iterable[KernelId]) -> list[KernelMinute]:
        """Only these are still measured. Returns the last minutes of the others."""
        left = self._open.keys() - set(kernels)
        return [_minute(kernel_id, *self._open.pop(kernel_id)) for kernel_id in sorted(left)]


def _minute(kernel_id: KernelId, at: int, samples: list[Use]) -> KernelMinute:
    columns = [[getattr(sample, name) for sample in samples] for name in Use.__dataclass_fields__]
    known = [[value for value in column if value is not None] for column in columns]
    mean = Use(*(round(sum(column) / len(column)) if column else None for column in known))  # type: ignore[arg-type]
    peak = Use(*(max(column, default=None) for column in known))  # type: ignore[arg-type]
    return KernelMinute(kernel_id, at, len(samples), mean, peak)
