"""Device health monitor: fences unhealthy devices, returns them after their probation, and offers
fenced devices as unhealthy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from moorage.agent.devices.health.memory_release import KernelProcesses, MemoryReleaseCheck
from moorage.agent.devices.health.rules import Fence, update_fences
from moorage.agent.devices.inventory import Inventory
from moorage.agent.devices.manager import DeviceManager
from moorage.agent.devices.usage.sampler import RunningKernel
from moorage.agent.runtimes.base import Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock
from moorage.common.link.messages import SlotOffer
from moorage.common.model.ids import DeviceId, KernelId

log = structlog.get_logger("moorage.agent.devices")


class DeviceFences:
    """The devices that are fenced now. ``changed`` is called when a device was fenced or has
    returned."""

    def __init__(self, clock: Clock, *, probation_s: float) -> None:
        self._clock = clock
        self._probation_s = probation_s
        self._fences: dict[DeviceId, Fence] = {}
        self.changed: Callable[[], None] = lambda: None

    def update(self, unhealthy: Mapping[DeviceId, str]) -> None:
        """Apply a complete check: all other devices count as healthy."""
        before = self._fences
        reasons_before = self.reasons()
        self._fences = update_fences(before, unhealthy, self._clock.monotonic(), self._probation_s)
        for device_id in self._fences.keys() - before.keys():
            log.error("fenced a device", device=device_id, reason=self._fences[device_id].reason)
        for device_id in before.keys() - self._fences.keys():
            log.warning("a device is healthy again", device=device_id, was=before[device_id].reason)

        if self.reasons() != reasons_before:
            self.changed()

    def fence(self, device_id: DeviceId, reason: str) -> None:
        """Fence one device until it has been healthy for the probation period."""
        log.error("fenced a device", device=device_id, reason=reason)
        self._fences = {**self._fences, device_id: Fence(reason, self._clock.monotonic())}
        self.changed()

    def reasons(self) -> dict[DeviceId, str]:
        return {device_id: fence.reason for device_id, fence in self._fences.items()}


class FencedInventory:
    """An inventory that offers fenced devices as unhealthy."""

    def __init__(self, inner: Inventory, fences: DeviceFences) -> None:
        self._inner = inner
        self._fences = fences

    def offers(self) -> tuple[SlotOffer, ...]:
        reasons = self._fences.reasons()
        return tuple(
            replace(offer, healthy=False, unhealthy_reason=reason)
            if offer.device_id and (reason := reasons.get(offer.device_id))
            else offer
            for offer in self._inner.offers()
        )


class DeviceHealthMonitor:
    """Checks the health of ``devices`` and the release of their memory.

    ``running``: the kernels whose processes can be listed. ``probation_s``, ``free_bytes`` and
    ``free_timeout_s`` are the settings ``agent.device_probation_s``, ``agent.device_free_mem`` and
    ``agent.device_free_timeout_s``.
    """

    def __init__(
        self,
        devices: DeviceManager,
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
        # A device that was fenced for unreleased memory stays fenced until that memory is free; the
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
    """Name of the process's program; "" if the process has exited or is not visible."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
