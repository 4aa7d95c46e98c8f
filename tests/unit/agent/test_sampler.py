"""The sampler: what it sends, and that a manager which is away or slow costs nothing but news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest_asyncio

from moorage.agent.devices.usage.rates import GpuSeen
from moorage.agent.devices.usage.sampler import Measured, Sampler
from moorage.agent.runtimes import Counters, FakeRuntime, Handle, Launch, RuntimeFailed
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import ManualClock
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.usage import UsageReport

K, D0 = KernelId("k"), DeviceId("GPU-0")


class Node:
    """``manager``: None answers nothing, else whether it takes what is sent."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.runtime = ManualClock(), FakeRuntime(LogStore(folder))
        self.running: dict[KernelId, Measured] = {}
        self.sent: list[UsageReport] = []
        self.manager: bool | None = True
        runtimes = {"fake": self.runtime, "away": Away(LogStore(folder))}
        self.sampler = Sampler(
            AgentId("a"), "i", clock=self.clock, runtimes=runtimes,
            running=lambda: self.running, devices=lambda: {D0: DeviceId("")}, gpus=self, send=self.send,
        )  # fmt: skip

    def measure(self, devices: Mapping[DeviceId, DeviceId]) -> dict[DeviceId, GpuSeen]:
        return {D0: GpuSeen(D0, 9, 80, 420, {7: 8}, temperature=50)}

    async def send(self, report: UsageReport) -> bool:
        self.sent.append(report)
        if self.manager is None:
            await asyncio.Event().wait()
        return bool(self.manager)

    async def begin(self, runtime: str, **devices: int) -> None:
        env = {"FAKE_MEMORY": "4096", "FAKE_RUN_S": "600"}
        handle = await self.runtime.create(Launch(K, ("x",), env))
        self.running[K] = Measured(runtime, handle, {DeviceId(d): n for d, n in devices.items()})

    async def tick(self, after_s: float = 5) -> None:
        self.clock.advance(after_s)
        await self.sampler.tick()
        for _ in range(3):
            await asyncio.sleep(0)


class Away(FakeRuntime):
    name = "away"

    async def usage(self, handles: Mapping[KernelId, Handle]) -> dict[KernelId, Counters]:
        raise RuntimeFailed("no answer")


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    yield made
    await made.sampler.close()


async def test_what_is_sent(node: Node) -> None:
    await node.begin("fake")
    node.running[K] = Measured("fake", node.running[K].handle, {D0: 1000})
    await node.tick()
    # Of counters that were seen once nothing can be said yet.
    assert node.sent[-1].kernels == ()
    assert [(d.memory, d.gpu, d.temperature, d.power) for d in node.sent[-1].devices] == [(9, 420, 50, None)]
    await node.tick()
    (kernel,) = node.sent[-1].kernels
    assert (kernel.use.memory, kernel.use.gpu, kernel.use.gpu_memory) == (4096, 420, 9)
    assert node.sent[-1].memory > 0
    del node.running[K]
    await node.tick()
    assert node.sent[-1].kernels == ()
    assert [(m.kernel_id, m.samples) for m in node.sent[-1].minutes] == [(K, 1)]


async def test_a_manager_that_is_slow_gets_the_newest_and_no_queue(node: Node) -> None:
    node.manager = None
    for _ in range(4):
        await node.tick()
    assert len(node.sent) == 1
    assert node.sampler.dropped == 3


async def test_minutes_are_kept_until_somebody_takes_them(node: Node) -> None:
    await node.begin("fake")
    node.manager = False
    for _ in range(30):
        await node.tick()
    ended = node.sent[-1].minutes
    assert [m.at for m in ended] == sorted({m.at for m in ended})
    assert len(ended) == 2
    node.manager = True
    await node.tick()
    assert node.sent[-1].minutes == ended
    await node.tick()
    assert node.sent[-1].minutes == ()
    node.manager = False
    for _ in range(700):
        await node.tick(60)
    assert len(node.sent[-1].minutes) == 600


async def test_a_runtime_that_is_away_costs_its_kernels_alone(node: Node) -> None:
    await node.begin("away")
    await node.tick()
    await node.tick()
    assert node.sent[-1].kernels == ()
    assert len(node.sent[-1].devices) == 1
