"""The usage sampler: report contents, and behaviour with an unreachable or slow manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest_asyncio

from moorage.agent.devices import DeviceMeasurement
from moorage.agent.devices.usage import RunningKernel, UsageSampler
from moorage.agent.devices.usage.sampler import AT_ONCE
from moorage.agent.runtimes import Counters, FakeRuntime, Handle, Launch, RuntimeFailed
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.resource_usage import UsageReport

K = KernelId("k")
D0 = DeviceId("GPU-0")


class Node:
    """``accepts``: whether the manager accepts reports; None means that it never answers.
    ``may_send``: when a report can be sent."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.runtime = FakeRuntime(LogStore(folder))
        self.running: dict[KernelId, RunningKernel] = {}
        self.sent: list[UsageReport] = []
        self.accepts: bool | None = True
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.busy = 420
        runtimes = {"fake": self.runtime, "unavailable": Unavailable(LogStore(folder))}
        self.sampler = UsageSampler(
            AgentId("a"), "i", clock=self.clock, runtimes=runtimes,
            running=lambda: self.running, devices=lambda: {D0: DeviceId("")}, meter=self, send=self.send,
        )  # fmt: skip

    def measure(self, devices: Mapping[DeviceId, DeviceId]) -> dict[DeviceId, DeviceMeasurement]:
        return {D0: DeviceMeasurement(D0, 9, 80, self.busy, {7: 8}, temperature=50)}

    async def send(self, make: Callable[[], UsageReport]) -> bool:
        await self.may_send.wait()
        self.sent.append(make())
        if self.accepts is None:
            await asyncio.Event().wait()
        return bool(self.accepts)

    async def start_kernel(self, runtime: str, **devices: int) -> None:
        env = {"FAKE_MEMORY": "4096", "FAKE_RUN_S": "600"}
        handle = await self.runtime.create(Launch(K, ("x",), env))
        self.running[K] = RunningKernel(
            runtime, handle, {DeviceId(d): n for d, n in devices.items()}
        )

    async def tick(self, after_s: float = 5) -> None:
        self.clock.advance(after_s)
        await self.sampler.tick()
        for _ in range(3):
            await asyncio.sleep(0)


class Unavailable(FakeRuntime):
    name = "unavailable"

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        raise RuntimeFailed("no answer")


class Measured:
    """Counters that accept any kernel. ``turns``: the kernels in each measurement."""

    def __init__(self) -> None:
        self.turns: list[set[KernelId]] = []

    async def __call__(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        self.turns.append(set(handles))
        return {kernel_id: Counters(len(self.turns), 1) for kernel_id in handles}


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    yield node
    await node.sampler.close()


async def test_report_has_kernels_devices_and_node(node: Node) -> None:
    await node.start_kernel("fake")
    node.running[K] = RunningKernel("fake", node.running[K].handle, {D0: 1000})
    await node.tick()

    # A rate needs two readings of the counters.
    assert node.sent[-1].kernels == ()
    assert [(d.memory, d.gpu, d.temperature, d.power) for d in node.sent[-1].devices] == [
        (9, 420, 50, None)
    ]
    await node.tick()
    (kernel,) = node.sent[-1].kernels
    assert (kernel.use.memory, kernel.use.gpu, kernel.use.gpu_memory) == (4096, 420, 9)
    assert node.sent[-1].memory > 0
    del node.running[K]
    await node.tick()
    assert node.sent[-1].kernels == ()
    assert [(m.kernel_id, m.samples) for m in node.sent[-1].minutes] == [(K, 1)]


async def test_slow_manager_gets_the_newest_report_and_no_backlog(node: Node) -> None:
    node.accepts = None
    for _ in range(4):
        await node.tick()
    assert len(node.sent) == 1
    assert node.sampler.dropped == 3


async def test_report_that_waits_is_of_the_newest_measurement(node: Node) -> None:
    await node.start_kernel("fake", **{"GPU-0": 1000})
    node.may_send.clear()
    await node.tick()
    node.busy = 990
    await node.tick()
    await node.tick()
    node.may_send.set()
    while not node.sent:
        await asyncio.sleep(0)

    (report,) = node.sent
    assert [d.gpu for d in report.devices] == [990]

    # The kernel was measured for the first time when the report was already waiting.
    assert [(kernel.kernel_id, kernel.use.gpu) for kernel in report.kernels] == [(K, 990)]


async def test_completed_minutes_are_buffered_until_the_manager_accepts_them(node: Node) -> None:
    await node.start_kernel("fake")
    node.accepts = False
    for _ in range(30):
        await node.tick()

    completed = node.sent[-1].minutes
    assert [m.at for m in completed] == sorted({m.at for m in completed})
    assert len(completed) == 2
    node.accepts = True
    await node.tick()
    assert node.sent[-1].minutes == completed
    await node.tick()
    assert node.sent[-1].minutes == ()
    node.accepts = False
    for _ in range(700):
        await node.tick(60)

    assert len(node.sent[-1].minutes) == 600


async def test_unavailable_runtime_affects_only_its_own_kernels(node: Node) -> None:
    await node.start_kernel("unavailable")
    await node.tick()
    await node.tick()
    assert node.sent[-1].kernels == ()
    assert len(node.sent[-1].devices) == 1


async def test_many_kernels_take_turns(node: Node) -> None:
    await node.start_kernel("fake")
    one = node.running[K]
    count = 2 * AT_ONCE + 10
    node.running = {KernelId(f"{n}"): one for n in range(count)}
    measured = Measured()
    node.runtime.usage = measured  # type: ignore[method-assign]
    for _ in range(6):
        await node.tick()

    assert [len(turn) for turn in measured.turns] == [AT_ONCE, AT_ONCE, 10] * 2
    assert {kernel for turn in measured.turns[:3] for kernel in turn} == node.running.keys()
    assert [len(report.kernels) for report in node.sent[3:]] == [AT_ONCE, AT_ONCE, 10]
    assert len(node.sampler.latest.kernels) == count
    node.running = {}
    await node.tick()
    assert not node.sampler.latest.kernels
