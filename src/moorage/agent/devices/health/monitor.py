"""Device health monitor: fences unhealthy devices and returns them to service after their
probation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from moorage.agent.devices.health.fences import DeviceFences
from moorage.agent.devices.health.memory_release import KernelProcesses, MemoryReleaseCheck
from moorage.agent.devices.usage.sampler import RunningKernel
from moorage.agent.devices.vendor import DeviceMeter, DeviceParents
from moorage.agent.runtimes.base import Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import DeviceId, KernelId

log = structlog.get_logger("moorage.agent.devices")


class MonitoredDevices(DeviceMeter, Protocol):
    """``parents``: every device ever offered, with the device that it is a slice of, or ""."""

    parents: dict[DeviceId, DeviceId]

    def unhealthy(self, devices: DeviceParents) -> dict[DeviceId, str]:
        """The devices on which nothing should be started, with the reason."""
        ...


class DeviceHealthMonitor:
    """Checks the health of ``devices`` and the release of their memory.

    ``running``: the kernels whose processes can be listed. ``probation_s``, ``free_bytes`` and
    ``free_timeout_s`` are the settings ``agent.device_probation_s``, ``agent.device_free_mem`` and
    ``agent.device_free_timeout_s``.
    """

    def __init__(
        self,
        devices: MonitoredDevices,
        clock: Clock,
        *,
        runtimes: Mapping[str, Runtime],
        running: Callable[[], Mapping[KernelId, RunningKernel]],
        probation_s: float,
        free_bytes: int,
        free_timeout_s: float,
    ) -> None:
        self._devices = devices
        self._runtimes = runtimes
        self._running = running
        self.fences = DeviceFences(clock, probation_s=probation_s)
        self.memory_release = MemoryReleaseCheck(
            devices,
            self.fences,
            clock,
            parents=lambda: devices.parents,
            other_kernels=self._other_kernels,
            free_bytes=free_bytes,
            timeout_s=free_timeout_s,
            program=program_name,
        )

    async def check(self) -> None:
        """Check all devices once and update the fences."""
        parents = dict(self._devices.parents)
        unhealthy = await asyncio.to_thread(self._devices.unhealthy, parents)
        # A device that was fenced for unreleased memory stays fenced until that memory is free. The
        # vendor does not know about it.
        fenced = [d for d in self.fences.reasons() if d not in unhealthy]
        unreleased = await self.memory_release.unreleased(fenced) if fenced else {}
        self.fences.update(unreleased | unhealthy)

    async def _other_kernels(self, kernel_id: KernelId) -> list[KernelProcesses]:
        running = {
            k: kernel for k, kernel in self._running().items() if k != kernel_id and kernel.devices
        }
        pids: dict[KernelId, tuple[int, ...]] = {}
        for name in {kernel.runtime for kernel in running.values()} & self._runtimes.keys():
            handles = {k: kernel.handle for k, kernel in running.items() if kernel.runtime == name}
            try:
                counters = await self._runtimes[name].usage(handles)
            except (RuntimeFailed, OSError):
                continue  # with unknown pids these kernels are never blamed for memory in use

            pids |= {k: usage.pids for k, usage in counters.items()}

        return [
            KernelProcesses(pids.get(k, ()), frozenset(kernel.devices))
            for k, kernel in running.items()
        ]


def program_name(pid: int) -> str:
    """The name of the process's program; empty if the process has exited or is not visible."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
