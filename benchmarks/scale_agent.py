"""An agent in the scale benchmark: the cost of one change and of an idle tick, by the number of its
kernels.

A real kernel manager with its checkpoint on disk, a usage sampler and the agent's end of the link.
The kernels are those of the fake runtime, so that only the agent itself is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from moorage.agent.devices.usage import UsageSampler
from moorage.agent.devices.vendor import DeviceMeasurement, DeviceParents
from moorage.agent.engines import NodeInfo
from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.kernel.checkpoint import CheckpointFiles
from moorage.agent.kernel.context import AgentContext
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.kernel.manager import KernelManager
from moorage.agent.runtimes import FakeRuntime
from moorage.agent.state.logs import LogStore
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import AgentInfo, Orders, OrdersDelta, Report, ReportDelta
from moorage.common.link.sync import ReportSender
from moorage.common.model.ids import AgentId, DeviceId, KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.resource_usage import UsageReport
from moorage.common.model.status import ObservedState, SessionType
from scale_meter import Case, Meter

# per round
CHANGES = 5
SAMPLES = 5
FULL_LOOK_S = 60.0
CLOCK = SystemClock()
INFO = AgentInfo(
    AgentId("agent"),
    "default",
    address="127.0.0.1",
    version="0",
    arch="x86_64",
    runtimes=("fake",),
    engines=("custom",),
    offers=(),
)


def kernel() -> KernelSpec:
    kernel_id = KernelId(CLOCK.new_id())
    session_id = SessionId(CLOCK.new_id())
    env = {"FAKE_RUN_S": "1e6"}
    return KernelSpec(
        kernel_id, session_id, "s", SessionType.BATCH, "fake", "custom", "s", env=env, lease_s=6e3
    )  # fmt: skip


class NoDevices:
    def measure(self, devices: DeviceParents) -> dict[DeviceId, DeviceMeasurement]:
        return {}


class Agent:
    """``size`` running kernels."""

    def __init__(self, dsn: str, size: int) -> None:
        self._size = size
        self._generations = itertools.count(2)
        self._generation = 1
        self._stack = AsyncExitStack()
        self._sender = ReportSender(deltas=True)

    async def __aenter__(self) -> Agent:
        state = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-scale-"))
        )
        logs = LogStore(state / "logs")
        leases = KernelLeases(state, CLOCK)
        leases.renew(int(CLOCK.boottime() * 1000))
        runtime = FakeRuntime(logs)
        self.kernels = KernelManager(
            AgentContext(
                clock=CLOCK,
                checkpoint=CheckpointFiles(state),
                ports=PortAllocator("22000-22099", "127.0.0.1", clock=CLOCK),
                logs=logs,
                runtimes={"fake": runtime},
                node=NodeInfo(),
                host="127.0.0.1",
                process_dir=lambda kernel_id: state / kernel_id,
                workspaces=Workspaces(state),
                leases=leases,
            ),
            on_change=lambda within_s: None,
        )
        self._stack.push_async_callback(self.kernels.close)
        await self.kernels.recover()
        self._specs = {spec.kernel_id: spec for spec in (kernel() for _ in range(self._size))}
        self.kernels.apply_orders(Orders(1, tuple(self._specs.values())))

        while any(
            state is not ObservedState.RUNNING for _, state in self.kernels.states().values()
        ):
            await asyncio.sleep(0.1)

        self._sampler = UsageSampler(
            INFO.agent_id,
            "1",
            clock=CLOCK,
            runtimes={"fake": runtime},
            running=self.kernels.active_kernels,
            devices=dict,
            meter=NoDevices(),
            send=self._send_usage,
        )
        self._stack.push_async_callback(self._sampler.close)
        self._sender.next_message(Report(INFO, "1", 1, self.kernels.observations(), stream=1))
        self.kernels.take_changes()

        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _send_usage(self, newest: Callable[[], UsageReport]) -> bool:
        newest()
        return True

    async def round(self, meter: Meter) -> None:
        for _ in range(CHANGES):
            with meter.step("agent: a kernel is replaced"):
                await self._replace()

            with meter.step("agent: report it"):
                changed, removed = self.kernels.take_changes()
                delta = ReportDelta(
                    "1", self._generation, kernels=changed, removed=removed, info=INFO
                )
                message = self._sender.next_message(delta).SerializeToString()

            assert 100 < len(message) < 2000, "two kernels have changed"

        for _ in range(SAMPLES):
            with meter.step("agent: a usage sample"):
                await self._sampler.tick()
                await asyncio.sleep(0)

        with meter.step("agent: its full look", of_s=FULL_LOOK_S):
            await self.kernels.scan()

    async def _replace(self) -> None:
        """Orders withdraw one kernel and add another."""
        gone = next(iter(self._specs))
        new = kernel()
        del self._specs[gone]
        self._specs[new.kernel_id] = new
        base = self._generation
        self._generation = next(self._generations)
        self.kernels.apply_orders(
            OrdersDelta(self._generation, base, added=(new,), withdrawn=frozenset({gone}), digest=0)
        )
        active = self.kernels.active_kernels()
        while gone in active or new.kernel_id not in active:
            await asyncio.sleep(0.002)

        await asyncio.sleep(0.03)  # until the remains of the other one are removed


CASES = {
    "agent": Case(
        Agent, (100, 1_000, 10_000), (100, 1_000), lambda s: "per second" if "full" in s else "each"
    )
}
