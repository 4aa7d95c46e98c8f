"""Memory release check: delays the start of a kernel until the memory of its GPUs is free.

A killed process's memory is released with a delay, or never, because the driver may hang. The
memory may also belong to another user's process on the node. A kernel that starts too early fails
with an out-of-memory error that does not name the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from moorage.agent.devices.health.fences import DeviceFences
from moorage.agent.devices.health.rules import describe_unreleased, unreleased_memory
from moorage.agent.devices.vendor import DeviceMeter
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.reasons import Reason

_MIN_DELAY_S = 0.1
_MAX_DELAY_S = 1.0


@dataclass(frozen=True, slots=True)
class KernelProcesses:
    """The processes and devices of a running kernel."""

    pids: tuple[int, ...]
    devices: frozenset[DeviceId]


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    reason: Reason
    detail: str


class MemoryReleaseCheck:
    """A check that device memory has been released. ``other_kernels``: the running kernels except
    the one that is about to start. ``free_bytes``: a device with at most this much unreleased
    memory is considered free. ``program``: returns the name of a process's program."""

    def __init__(
        self,
        meter: DeviceMeter,
        fences: DeviceFences,
        clock: Clock,
        *,
        parents: Callable[[], Mapping[DeviceId, DeviceId]],
        other_kernels: Callable[[KernelId], Awaitable[list[KernelProcesses]]],
        free_bytes: int,
        timeout_s: float,
        program: Callable[[int], str],
    ) -> None:
        self._meter = meter
        self._fences = fences
        self._clock = clock
        self._parents = parents
        self._other_kernels = other_kernels
        self._free_bytes = free_bytes
        self._timeout_s = timeout_s
        self._program = program

    async def wait(
        self, kernel_id: KernelId, devices: frozenset[DeviceId], on_progress: Callable[[str], None]
    ) -> MemoryInUse | None:
        """Wait until the memory of ``devices`` is free, and return None. A device whose memory is
        still in use at the timeout is fenced, and the kernel is refused. ``on_progress`` is called
        with the reason for the delay after each check. The wait can be cancelled."""
        deadline = self._clock.monotonic() + self._timeout_s
        delay = _MIN_DELAY_S
        while True:
            reasons = await self._unreleased(kernel_id, devices)
            if not reasons:
                return None

            text = "; ".join(reasons.values())
            if self._clock.monotonic() >= deadline:
                for device_id, reason in reasons.items():
                    self._fences.fence(device_id, reason)
                return MemoryInUse(Reason.DEVICE_BUSY, f"after {self._timeout_s:g} s: {text}")

            on_progress(f"waiting for GPU memory: {text}")
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MAX_DELAY_S)

    async def unreleased(self, devices: Collection[DeviceId]) -> dict[DeviceId, str]:
        """The devices with unreleased memory, with a message for users."""
        return await self._unreleased(KernelId(""), devices)

    async def _unreleased(
        self, kernel_id: KernelId, devices: Collection[DeviceId]
    ) -> dict[DeviceId, str]:
        parents = self._parents()
        kernels = await self._other_kernels(kernel_id)
        measurements = await asyncio.to_thread(
            self._meter.measure,
            {device_id: parents.get(device_id, DeviceId("")) for device_id in devices},
        )
        kernel_pids = {pid for kernel in kernels for pid in kernel.pids}
        messages = {}
        for device_id, measurement in measurements.items():
            shared = any(device_id in kernel.devices for kernel in kernels)
            memory = unreleased_memory(measurement, kernel_pids, shared)
            if memory.size > self._free_bytes:
                names = {pid: self._program(pid) for pid in memory.by_pid}
                messages[device_id] = describe_unreleased(device_id, memory, names)

        return messages
