"""A fake manager on a real gRPC server, and agents that connect to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
from tests.addresses import agent_ports, port_range

from moorage.agent import Agent
from moorage.agent.runtimes import procfs
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings
from moorage.common.link import codec
from moorage.common.link.messages import Observation, Orders, Report, ReportDelta
from moorage.common.link.pb import agent_pb2, agent_pb2_grpc, peers_pb2, peers_pb2_grpc
from moorage.common.link.sync import ReportReceiver
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState, SessionType

TOKEN = "the-link-token"
CLOCK = SystemClock()
PORTS = agent_ports()
OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
]


class FakeManager(agent_pb2_grpc.AgentLinkServicer, peers_pb2_grpc.PeersServicer):
    """Sends only the messages that a test requests, and records all reports."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.arrived_at: list[float] = []  # monotonic seconds, one per report
        self.report_pause_ms = 0
        self.arrived = asyncio.Condition()
        self.streams = 0
        self.refused = 0

        # reports received in full and as deltas
        self.wholes = 0
        self.deltas = 0
        self.usages = 0  # reports with usage
        self.newest_usage = agent_pb2.UsageReport()
        self.generation = 0
        self.orders: Orders | None = None
        self._outbox: asyncio.Queue[agent_pb2.ManagerMessage] = asyncio.Queue()
        self.logs: dict[str, bytearray] = {}
        self.log_errors: dict[str, str] = {}
        self.logs_ended: set[str] = set()

        # Log requests with readers that disconnect after the first data.
        self.disconnecting_readers: set[str] = set()
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def last_report(self) -> Report:
        return self.reports[-1]

    async def start(self) -> None:
        self._server = grpc.aio.server(options=OPTIONS)
        agent_pb2_grpc.add_AgentLinkServicer_to_server(self, self._server)
        peers_pb2_grpc.add_PeersServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(grace=0)

    def send(self, message: codec.ManagerMessage) -> None:
        wire = codec.manager_message_to_wire(message)
        wire.report_pause_ms = self.report_pause_ms
        wire.report_deltas = True
        self._outbox.put_nowait(wire)

    def tell(self, **settings: Any) -> None:
        """A message with nothing else in it."""
        self._outbox.put_nowait(agent_pb2.ManagerMessage(**settings))

    def order(self, *kernels: KernelSpec, generation: int | None = None) -> Orders:
        """Order exactly these kernels, with the next generation unless one is given."""
        self.generation += 1
        orders = Orders(self.generation if generation is None else generation, kernels)
        if generation is None:
            self.orders = orders
        self.send(orders)
        return orders

    async def wait_for_report(
        self, condition: Callable[[Report], bool], timeout_s: float = 20
    ) -> Report:
        """The first report that satisfies ``condition``, starting with the newest one received so
        far."""
        checked = max(0, len(self.reports) - 1)
        try:
            async with asyncio.timeout(timeout_s), self.arrived:
                while True:
                    for report in self.reports[checked:]:
                        if condition(report):
                            return report

                    checked = len(self.reports)
                    await self.arrived.wait()
        except TimeoutError:
            raise AssertionError(f"no such report; the latest: {self.reports[-1:]}") from None

    async def wait_for_kernel(
        self, kernel_id: str, *states: ObservedState, timeout_s: float = 20
    ) -> Observation:
        report = await self.wait_for_report(
            lambda r: (k := find_kernel(r, kernel_id)) is not None and k.state in states, timeout_s
        )
        found = find_kernel(report, kernel_id)
        assert found is not None
        return found

    async def Hello(self, request: peers_pb2.HelloRequest, context: Any) -> peers_pb2.HelloReply:
        await self._authenticate(context)
        return peers_pb2.HelloReply()

    async def _authenticate(self, context: Any) -> None:
        if dict(context.invocation_metadata())["authorization"] != f"Bearer {TOKEN}":
            self.refused += 1
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong link token")

    async def Attach(self, reports: AsyncIterator[agent_pb2.Report], context: Any) -> None:
        await self._authenticate(context)
        self.streams += 1
        outbox = asyncio.Queue()
        self._outbox = outbox
        if self.orders is not None:
            self.send(self.orders)

        writer = asyncio.create_task(self._write(outbox, context))
        receiver = ReportReceiver()
        kernels = dict[KernelId, Observation]()
        try:
            async for wire in reports:
                message = receiver.receive(wire)
                if wire.HasField("usage"):
                    self.usages += 1
                    self.newest_usage = wire.usage

                assert message is not None, "a delta of the agent must match what it sent before"
                report = message if isinstance(message, Report) else self.reports[-1]
                if isinstance(message, ReportDelta):
                    kernels = {k: seen for k, seen in kernels.items() if k not in message.removed}
                    kernels |= {k.kernel_id: k for k in message.kernels}
                    report = replace(
                        report,
                        info=message.info or report.info,
                        orders_generation=message.orders_generation,
                        kernels=tuple(kernels.values()),
                        draining=message.draining,
                        orders_wanted=message.orders_wanted,
                        sent_at=message.sent_at,
                    )
                else:
                    kernels = {k.kernel_id: k for k in message.kernels}

                async with self.arrived:
                    self.wholes += isinstance(message, Report)
                    self.deltas += isinstance(message, ReportDelta)
                    self.reports.append(report)
                    self.arrived_at.append(CLOCK.monotonic())
                    self.arrived.notify_all()
        finally:
            writer.cancel()

    async def _write(self, outbox: asyncio.Queue[agent_pb2.ManagerMessage], context: Any) -> None:
        """Messages are sent to the latest stream; each stream starts with the orders."""
        while True:
            await context.write(await outbox.get())

    async def SendLogs(
        self, chunks: AsyncIterator[agent_pb2.LogChunk], context: Any
    ) -> agent_pb2.LogAck:
        async for chunk in chunks:
            async with self.arrived:
                self.logs.setdefault(chunk.request_id, bytearray()).extend(chunk.data)
                if chunk.error:
                    self.log_errors[chunk.request_id] = chunk.error

                self.arrived.notify_all()

            request_id = chunk.request_id
            if chunk.data and request_id in self.disconnecting_readers:
                break

        async with self.arrived:
            self.logs_ended.add(request_id)
            self.arrived.notify_all()

        return agent_pb2.LogAck()

    async def wait_for_logs(self, condition: Callable[[], bool], timeout_s: float = 10) -> None:
        async with asyncio.timeout(timeout_s), self.arrived:
            await self.arrived.wait_for(condition)


def find_kernel(report: Report, kernel_id: str) -> Observation | None:
    return next((kernel for kernel in report.kernels if kernel.kernel_id == kernel_id), None)


@contextlib.asynccontextmanager
async def run_fake_manager() -> AsyncIterator[FakeManager]:
    manager = FakeManager()
    await manager.start()
    try:
        yield manager
    finally:
        await manager.stop()


def agent_settings(manager: FakeManager, **settings: Any) -> AgentSettings:
    chosen = {
        "id": "one",
        "inventory": "fake:2xH100",
        "manager": manager.target,
        "report_interval_s": 0.5,
    }
    return AgentSettings(**chosen | {"port_range": port_range(PORTS)} | settings)


def make_agent(manager: FakeManager, home: Path, **settings: Any) -> Agent:
    chosen = agent_settings(manager, **settings)
    return Agent(chosen, CommonSettings(link_tls="off"), clock=CLOCK, link_token=TOKEN, home=home)


@contextlib.asynccontextmanager
async def connected_agent(home: Path) -> AsyncIterator[FakeManager]:
    """The manager of an agent that has applied its first orders."""
    async with run_fake_manager() as manager:
        manager.order()
        async with make_agent(manager, home):
            await manager.wait_for_report(
                lambda report: report.orders_generation == manager.generation
            )
            yield manager


def kernel(*command: str, **fields: Any) -> KernelSpec:
    given: dict[str, Any] = {
        "kernel_id": KernelId(CLOCK.new_id()),
        "session_id": SessionId(CLOCK.new_id()),
        "session_name": "some-session",
        "session_type": SessionType.BATCH,
        "runtime": "process",
        "engine": "custom",
        "served_name": "some-model",
        "command": command,
        "secret": "kernel-secret",
        "stop_grace_s": 2.0,
    }
    return KernelSpec(**given | fields)


def processes(kernel_id: str) -> Iterator[int]:
    """Live processes with the kernel's id in their environment, including its supervisor."""
    for pid in procfs.pids():
        now = procfs.stat(pid)
        env = procfs.environ(pid)
        if now is not None and now.alive and env and env.get("MOORAGE_KERNEL_ID") == kernel_id:
            yield pid


async def wait_until_no_processes(kernel_id: str, timeout_s: float = 10) -> None:
    async with asyncio.timeout(timeout_s):
        while list(processes(kernel_id)):
            await asyncio.sleep(0.02)


async def wait_for_words(file: Path, at_least: int, timeout_s: float = 10) -> list[str]:
    """The words in a file, once it has ``at_least`` of them. A kernel may be RUNNING before it
    writes the file."""
    async with asyncio.timeout(timeout_s):
        while len(words := file.read_text().split() if file.exists() else []) < at_least:
            await asyncio.sleep(0.02)
    return words


def is_shim(pid: int) -> bool:
    return "MOORAGE_SHIM" in (procfs.environ(pid) or {})


AGENT_PROGRAM = """
import asyncio, sys
from pathlib import Path
from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings

async def main():
    target, home, token = sys.argv[1:4]
    settings = AgentSettings(id="one", inventory="fake:2xH100", manager=target, report_interval_s=0.5,
                             port_range=sys.argv[4])
    common = CommonSettings(link_tls="off")
    async with Agent(settings, common, clock=SystemClock(), link_token=token, home=Path(home)):
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def agent_process(
    manager: FakeManager, home: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """An agent in a separate process, which a test can kill."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        AGENT_PROGRAM,
        manager.target,
        str(home),
        TOKEN,
        port_range(PORTS),
        env=dict(os.environ),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


MANAGER_PROGRAM = """
import asyncio
import agent_harness as h

async def main():
    async with h.run_fake_manager() as manager:
        manager.order()
        print(manager.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def manager_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A manager in a separate process, which a test can freeze, and its port."""
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MANAGER_PROGRAM, env=env, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process, int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()
