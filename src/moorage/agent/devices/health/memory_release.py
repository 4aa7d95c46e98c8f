"""The last look before a kernel gets its GPUs: what ran there before must have let go of their memory.

A process that was killed gives its memory back some time later, or never (a driver that hangs, a stranger on
the node). Whoever is started too early dies of it, in words that nobody understands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from moorage.agent.devices.health.monitor import Watch
from moorage.agent.devices.health.rules import held, what_holds
from moorage.agent.devices.usage.rates import GpuSeen
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import DeviceId, KernelId
from moorage.common.model.reasons import Reason

_AGAIN_S = (0.1, 1.0)


class Meter(Protocol):
    def measure(self, devices: Mapping[DeviceId, DeviceId]) -> dict[DeviceId, GpuSeen]: ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A kernel that runs: its processes, and its devices."""

    pids: tuple[int, ...]
    devices: frozenset[DeviceId]


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: Reason
    detail: str


class Gate:
    """``neighbours``: the kernels that run, but for the one that asks. ``free_bytes``: so little memory in
    use counts as none. ``program`` names a process."""

    def __init__(
        self,
        meter: Meter,
        watch: Watch,
        clock: Clock,
        *,
        parents: Callable[[], Mapping[DeviceId, DeviceId]],
        neighbours: Callable[[KernelId], Awaitable[list[Neighbour]]],
        free_bytes: int,
        timeout_s: float,
        program: Callable[[int], str],
    ) -> None:
        self._meter, self._watch, self._clock = meter, watch, clock
        self._parents, self._neighbours = parents, neighbours
        self._free_bytes, self._timeout_s, self._program = free_bytes, timeout_s, program

    async def wait(
        self, kernel_id: KernelId, devices: frozenset[DeviceId], waiting: Callable[[str], None]
    ) -> Refusal | None:
        """None once their memory is free. ``waiting`` is told, each time in words, what it waits for. A
        device that is not free in time is fenced; may be cancelled."""
        deadline, rest = self._clock.monotonic() + self._timeout_s, _AGAIN_S[0]
        while True:
            holders = await self._held(kernel_id, devices)
            if not holders:
                return None
            words = "; ".join(holders.values())
            if self._clock.monotonic() >= deadline:
                for device_id, trouble in holders.items():
                    self._watch.fence(device_id, trouble)
                return Refusal(Reason.DEVICE_BUSY, f"after {self._timeout_s:g} s: {words}")
            waiting(f"waiting for GPU memory: {words}")
            await asyncio.sleep(rest)
            rest = min(2 * rest, _AGAIN_S[1])

    async def still_held(self, devices: Mapping[DeviceId, str]) -> dict[DeviceId, str]:
        """Of these, which the gate has fenced, those whose memory is not free yet."""
        return await self._held(KernelId(""), frozenset(devices))

    async def _held(self, kernel_id: KernelId, devices: frozenset[DeviceId]) -> dict[DeviceId, str]:
        parents = self._parents()
        asked = {device_id: parents.get(device_id, DeviceId("")) for device_id in devices}
        neighbours = await self._neighbours(kernel_id)
        seen = await asyncio.to_thread(self._meter.measure, asked)
        own = {pid for neighbour in neighbours for pid in neighbour.pids}
        found = {}
        for device_id, gpu in seen.items():
            shared = any(device_id in neighbour.devices for neighbour in neighbours)
            now = held(gpu, own, shared)
            if now.memory > self._free_bytes:
                names = {pid: self._program(pid) for pid in now.by}
                found[device_id] = what_holds(device_id, now, names)
        return found
