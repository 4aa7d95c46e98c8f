"""Usage sampler: measures kernels, devices and the node every few seconds and sends a report to the
manager.

Reports are best effort. While no manager can be reached, only the newest minutes are buffered. A
slow manager never delays a measurement. Each measurement covers some of the kernels in turn, so
that its cost does not depend on how many there are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from moorage.agent.devices.host import node_counters
from moorage.agent.devices.usage.rates import MinuteAggregator, kernel_device_usage, usage_between
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceMeter, DeviceParents
from moorage.agent.runtimes.base import Counters, Handle, Runtime, RuntimeFailed
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.resource_usage import (
    DeviceUse,
    EngineUse,
    KernelMinute,
    KernelProgress,
    KernelUse,
    UsageReport,
    Use,
)

log = structlog.get_logger("moorage.agent.devices.usage")
T = TypeVar("T", EngineUse, KernelProgress)
# How many completed minutes are buffered for the manager. The oldest are dropped first.
_MAX_MINUTES = 600
# Kernels per measurement.
AT_ONCE = 250
# Interval at which the loads of all engines and the progress of all kernels are sent. Changes are
# sent with each report.
ALL_ENGINES_S = 60.0


@dataclass(frozen=True, slots=True)
class RunningKernel:
    """A running kernel. ``devices``: how much of each device it holds, in 1/1000."""

    runtime: str
    handle: Handle
    devices: Mapping[DeviceId, int]
    spec: KernelSpec | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The latest measurement. ``node``: CPU in 1/1000 of a processor, and memory in bytes."""

    node: tuple[int, int] = (0, 0)
    kernels: Mapping[KernelId, Use] = field(default_factory=dict)
    devices: Mapping[DeviceId, DeviceMeasurement] = field(default_factory=dict)


class UsageSampler:
    """The sampler. ``running``: the kernels to measure. ``devices``: the offered devices with their
    parents. ``send`` calls its argument to get the report once it can send it, and returns whether
    the manager accepted the report; calls never overlap. ``wanted``: whether the manager currently
    wants a report. ``engines``: the load of each engine. ``progress``: the progress of each kernel
    that reports it."""

    def __init__(
        self,
        agent_id: AgentId,
        incarnation: str,
        *,
        clock: Clock,
        runtimes: Mapping[str, Runtime],
        running: Callable[[], Mapping[KernelId, RunningKernel]],
        devices: Callable[[], DeviceParents],
        meter: DeviceMeter,
        send: Callable[[Callable[[], UsageReport]], Awaitable[bool]],
        wanted: Callable[[], bool] = lambda: True,
        engines: Callable[[], Iterable[EngineUse]] = tuple,
        progress: Callable[[], Iterable[KernelProgress]] = tuple,
    ) -> None:
        self._id = agent_id
        self._incarnation = incarnation
        self._clock = clock
        self._runtimes = runtimes
        self._running = running
        self._devices = devices
        self._meter = meter
        self._send = send
        self._wanted = wanted
        self._engines = engines
        self._progress = progress
        self._sent_engines: dict[KernelId, EngineUse] = {}
        self._sent_progress: dict[KernelId, KernelProgress] = {}
        self._all_sent_at = 0.0
        self._previous: dict[KernelId, tuple[float, Counters]] = {}

        # The kernels still to be measured in this round, the latest use of each kernel, and unsent
        # data.
        self._turn: deque[KernelId] = deque()
        self._latest: dict[KernelId, Use] = {}
        self._unsent: dict[KernelId, Use] = {}
        self._previous_node: tuple[float, int] | None = None
        self._aggregator = MinuteAggregator()
        self._completed = list[KernelMinute]()
        self._sending: asyncio.Task[None] | None = None
        self.latest = Sample()
        self.dropped = 0
        """Reports that were not sent because the manager was unreachable or slow."""

    async def close(self) -> None:
        await cancel_and_wait(self._sending)

    async def tick(self) -> None:
        running = self._next_kernels()
        counters = await self._read_counters(running)
        measurements: dict[DeviceId, DeviceMeasurement] = {}
        if devices := self._devices():
            measurements = await asyncio.to_thread(self._meter.measure, devices)

        at = self._clock.monotonic()
        usage = self._kernel_usage(running, counters, measurements, at)
        self._previous |= {kernel_id: (at, now) for kernel_id, now in counters.items()}
        self._latest |= usage
        self._unsent |= usage
        wall = self._clock.now().timestamp()
        self._completed += [
            minute
            for kernel_id, sample in usage.items()
            if (minute := self._aggregator.add(kernel_id, wall, sample)) is not None
        ]
        self._forget(running.keys() - counters.keys())
        del self._completed[:-_MAX_MINUTES]
        self.latest = Sample(await self._node_usage(at), self._latest, measurements)
        if not self._wanted():
            return
        if self._sending is not None and not self._sending.done():
            self.dropped += 1  # the previous report is still being sent
            return

        self._sending = spawn("usage.send", self._send_report())

    def _next_kernels(self) -> dict[KernelId, RunningKernel]:
        running = self._running()
        if not self._turn:
            self._turn.extend(running)
            self._forget(self._previous.keys() - running.keys())
        turn = [self._turn.popleft() for _ in range(min(AT_ONCE, len(self._turn)))]
        return {kernel_id: running[kernel_id] for kernel_id in turn if kernel_id in running}

    def _forget(self, kernels: Iterable[KernelId]) -> None:
        """Forget kernels that cannot be measured any more; their last minutes are complete."""
        for kernel_id in kernels:
            for known in (self._previous, self._latest, self._unsent):
                known.pop(kernel_id, None)
            if (minute := self._aggregator.drop(kernel_id)) is not None:
                self._completed.append(minute)

    async def _read_counters(
        self, running: Mapping[KernelId, RunningKernel]
    ) -> dict[KernelId, Counters]:
        counters: dict[KernelId, Counters] = {}
        for name, runtime in self._runtimes.items():
            handles = {k: kernel.handle for k, kernel in running.items() if kernel.runtime == name}
            if not handles:
                continue

            try:
                counters |= await runtime.usage(handles)
            except (RuntimeFailed, OSError) as error:
                log.debug("cannot read the usage of kernels", runtime=name, reason=str(error))

        return counters

    def _kernel_usage(
        self,
        running: Mapping[KernelId, RunningKernel],
        counters: Mapping[KernelId, Counters],
        measurements: Mapping[DeviceId, DeviceMeasurement],
        at: float,
    ) -> dict[KernelId, Use]:
        usage = {}
        for kernel_id, now in counters.items():
            since, before = self._previous.get(kernel_id, (at, now))
            if at > since:
                gpu = kernel_device_usage(running[kernel_id].devices, now.pids, measurements)
                usage[kernel_id] = usage_between(before, now, at - since, gpu)

        return usage

    async def _node_usage(self, at: float) -> tuple[int, int]:
        try:
            cpu_us, memory = await asyncio.to_thread(node_counters)
        except (OSError, ValueError):
            return 0, 0
        since, before = self._previous_node or (at, cpu_us)
        self._previous_node = at, cpu_us
        return (round((cpu_us - before) / (at - since) / 1000) if at > since else 0), memory

    async def _send_report(self) -> None:
        made: list[UsageReport] = []

        def make() -> UsageReport:
            made.append(self._make_report())
            return made[-1]

        if not await self._send(make):
            self.dropped += 1
            return

        for report in made:
            self._sent_engines |= {engine.kernel_id: engine for engine in report.engines}
            self._sent_progress |= {progress.kernel_id: progress for progress in report.progress}
            sent = set(report.minutes)
            self._completed = [minute for minute in self._completed if minute not in sent]

    def _make_report(self) -> UsageReport:
        """Make a report with the newest measurement and the kernel measurements since the previous
        report."""
        latest = self.latest
        unsent = self._unsent
        self._unsent = {}
        self._send_all_again()

        return UsageReport(
            self._id,
            self._incarnation,
            *latest.node,
            tuple(KernelUse(kernel_id, use) for kernel_id, use in unsent.items()),
            tuple(
                DeviceUse(
                    d.device_id,
                    d.memory_used,
                    gpu=d.utilization,
                    temperature=d.temperature,
                    power=d.power,
                )
                for d in latest.devices.values()
            ),
            tuple(self._completed),
            _changed(self._sent_engines, self._engines()),
            _changed(self._sent_progress, self._progress()),
        )

    def _send_all_again(self) -> None:
        """Send everything again periodically, because the manager may have lost some of it."""
        now = self._clock.monotonic()
        if now - self._all_sent_at >= ALL_ENGINES_S:
            self._all_sent_at = now
            self._sent_engines = {}
            self._sent_progress = {}


def _changed(sent: dict[KernelId, T], values: Iterable[T]) -> tuple[T, ...]:
    """The values that the manager does not have yet. Forgets the values sent for kernels that no
    longer exist."""
    current = {value.kernel_id: value for value in values}
    for kernel_id in sent.keys() - current.keys():
        del sent[kernel_id]
    return tuple(value for k, value in current.items() if sent.get(k) != value)
