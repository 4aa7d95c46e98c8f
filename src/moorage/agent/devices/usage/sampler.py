"""The shell around ``rates``: measures every few seconds and sends what it found. Nothing waits for it, and
nothing is kept for a manager that is away but the newest minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from moorage.agent.devices.usage.host import node_counters
from moorage.agent.devices.usage.rates import GpuSeen, Minutes, attribute, use
from moorage.agent.runtimes.base import Counters, Handle, Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.usage import DeviceUse, KernelMinute, KernelUse, UsageReport, Use

log = structlog.get_logger("moorage.agent.devices.usage")
# So many ended minutes are kept until a manager takes them; then the oldest go.
_MINUTES_KEPT = 600


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel that runs: where, and what it has of which device (1/1000)."""

    runtime: str
    handle: Handle
    devices: Mapping[DeviceId, int]


class Meter(Protocol):
    def measure(self, devices: Mapping[DeviceId, DeviceId]) -> dict[DeviceId, GpuSeen]:
        """In a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """The last measurement, for ``describe`` and the agent's own metrics."""

    node: tuple[int, int] = (0, 0)  # cpu, memory
    kernels: Mapping[KernelId, Use] = field(default_factory=dict)
    gpus: Mapping[DeviceId, GpuSeen] = field(default_factory=dict)


class Sampler:
    """``running``: the kernels that can be measured. ``devices``: those offered, each with its parent or "".
    ``send`` returns whether the manager took the report; it is not called again before it returned."""

    def __init__(
        self,
        agent_id: AgentId,
        incarnation: str,
        *,
        clock: Clock,
        runtimes: Mapping[str, Runtime],
        running: Callable[[], Mapping[KernelId, Measured]],
        devices: Callable[[], Mapping[DeviceId, DeviceId]],
        gpus: Meter,
        send: Callable[[UsageReport], Awaitable[bool]],
    ) -> None:
        self._id, self._incarnation, self._clock = agent_id, incarnation, clock
        self._runtimes, self._running, self._devices = runtimes, running, devices
        self._gpus, self._send = gpus, send
        self._before: dict[KernelId, tuple[float, Counters]] = {}
        self._node: tuple[float, int] | None = None
        self._minutes, self._ended = Minutes(), list[KernelMinute]()
        self._sending: asyncio.Task[None] | None = None
        self.last = Sample()
        self.dropped = 0

    async def close(self) -> None:
        await cancel_and_wait(self._sending)

    async def tick(self) -> None:
        running = self._running()
        counters = await self._count(running)
        gpus: dict[DeviceId, GpuSeen] = {}
        if devices := self._devices():
            gpus = await asyncio.to_thread(self._gpus.measure, devices)
        at = self._clock.monotonic()
        uses = self._uses(running, counters, gpus, at)
        self._before = {kernel_id: (at, found) for kernel_id, found in counters.items()}
        wall = self._clock.now().timestamp()
        self._ended += [m for k, one in uses.items() if (m := self._minutes.add(k, wall, one)) is not None]
        self._ended += self._minutes.keep(counters)
        del self._ended[:-_MINUTES_KEPT]
        self.last = Sample(await self._whole_node(at), uses, gpus)
        if self._sending is not None and not self._sending.done():
            self.dropped += 1  # the manager has not taken the last one yet: the next will say more than this
            return
        self._sending = spawn("usage.send", self._tell())

    async def _count(self, running: Mapping[KernelId, Measured]) -> dict[KernelId, Counters]:
        found: dict[KernelId, Counters] = {}
        for name, runtime in self._runtimes.items():
            handles = {k: one.handle for k, one in running.items() if one.runtime == name}
            if not handles:
                continue
            try:
                found |= await runtime.usage(handles)
            except (RuntimeFailed, OSError) as error:
                log.debug("a runtime cannot say what its kernels use", runtime=name, why=str(error))
        return found

    def _uses(
        self,
        running: Mapping[KernelId, Measured],
        counters: Mapping[KernelId, Counters],
        gpus: Mapping[DeviceId, GpuSeen],
        at: float,
    ) -> dict[KernelId, Use]:
        uses = {}
        for kernel_id, now in counters.items():
            since, before = self._before.get(kernel_id, (at, now))
            if at > since:
                share = attribute(running[kernel_id].devices, now.pids, gpus)
                uses[kernel_id] = use(before, now, at - since, share)
        return uses

    async def _whole_node(self, at: float) -> tuple[int, int]:
        try:
            cpu_us, memory = await asyncio.to_thread(node_counters)
        except (OSError, ValueError):
            return 0, 0
        since, before = self._node or (at, cpu_us)
        self._node = at, cpu_us
        return (round((cpu_us - before) / (at - since) / 1000) if at > since else 0), memory

    async def _tell(self) -> None:
        minutes, last = tuple(self._ended), self.last
        report = UsageReport(
            self._id,
            self._incarnation,
            *last.node,
            tuple(KernelUse(kernel_id, one) for kernel_id, one in last.kernels.items()),
            tuple(
                DeviceUse(g.device_id, g.memory, g.busy, g.temperature, g.power) for g in last.gpus.values()
            ),
            minutes,
        )
        if await self._send(report):
            told = set(minutes)
            self._ended = [one for one in self._ended if one not in told]
        else:
            self.dropped += 1
