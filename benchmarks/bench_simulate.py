"""Cost of the fleet simulator: idle agents with their heartbeats, and kernels started and ended in
bulk.

A stub manager in this process gives orders to `moorage simulate` in another over real gRPC, and
counts the reports. The stub stores nothing, so that the simulator is what is measured. The
simulator must not be the bottleneck in a benchmark of the manager.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from measuring import cpu_s, machine, machine_line
from moorage.common.link import codec
from moorage.common.link.pb import agent_pb2, agent_pb2_grpc
from moorage.common.link.sync import OrdersSender, ReportReceiver
from moorage.common.model.ids import DeviceId, KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.status import ObservedState, SessionType

TOKEN = "bench"


class ConnectedAgent:
    """The orders of one agent, and when each kernel was ordered."""

    def __init__(self, stub: StubManager) -> None:
        self.stub = stub
        self.orders = dict[KernelId, KernelSpec]()
        self.ordered_at: dict[KernelId, float] = {}
        self.dirty = asyncio.Event()
        self.dirty.set()


class StubManager(agent_pb2_grpc.AgentLinkServicer):
    """Orders kernels, withdraws the orders of those that ended, and counts."""

    def __init__(self) -> None:
        self.agents: list[ConnectedAgent] = []
        self.reports = 0
        self.ready = 0
        self.ended = 0
        self.bytes = 0
        self.ready_s: list[float] = []
        self._generations = itertools.count(1)
        self._ids = itertools.count(1)
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
            ]
        )
        agent_pb2_grpc.add_AgentLinkServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    async def __aenter__(self) -> StubManager:
        await self._server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._server.stop(grace=0)

    def order(self, agent: ConnectedAgent) -> None:
        kernel_id = KernelId(f"01990000-0000-7000-8000-{next(self._ids):012x}")
        agent.orders[kernel_id] = KernelSpec(
            kernel_id, SessionId(kernel_id), "bench", SessionType.BATCH, "process", "custom", "bench",
            command=("true",), slots={"cpu": 1000, "mem": 1 << 30, "cuda.device": 1},
            devices=(DeviceGrant("cuda.device", DeviceId(f"GPU-{kernel_id[-4:]}"), 1000),), secret="a" * 32,
        )  # fmt: skip
        agent.ordered_at[kernel_id] = time.perf_counter()
        agent.dirty.set()

    async def Attach(self, reports: AsyncIterator[agent_pb2.Report], context: Any) -> None:
        agent = ConnectedAgent(self)
        incoming = ReportReceiver()
        writer = asyncio.create_task(self._write(agent, context))
        self.agents.append(agent)
        states: dict[str, str] = {}
        try:
            async for wire in reports:
                self.reports += 1
                self.bytes += wire.ByteSize()
                message = incoming.receive(wire)
                assert message is not None, "a delta does not match the reports before it"
                for kernel in message.kernels:
                    self._observe(agent, states, kernel.kernel_id, kernel.state)
                for kernel_id in wire.removed:
                    states.pop(kernel_id, None)
        finally:
            self.agents.remove(agent)
            writer.cancel()

    def _observe(
        self, agent: ConnectedAgent, states: dict[str, str], kernel_id: str, state: str
    ) -> None:
        before = states.get(kernel_id)
        states[kernel_id] = state
        if state != before and state == ObservedState.RUNNING:
            self.ready += 1
            if (ordered_at := agent.ordered_at.pop(KernelId(kernel_id), None)) is not None:
                self.ready_s.append(time.perf_counter() - ordered_at)

        if state != before and state == ObservedState.EXITED:
            self.ended += 1
            agent.orders.pop(KernelId(kernel_id), None)
            agent.dirty.set()

    async def _write(self, agent: ConnectedAgent, context: Any) -> None:
        out = OrdersSender()
        while True:
            await agent.dirty.wait()
            agent.dirty.clear()
            message = out.next_message(next(self._generations), agent.orders)
            wire = codec.manager_message_to_wire(message)
            wire.report_deltas = True
            await context.write(wire)


async def wait_until_connected(stub: StubManager, agents: int) -> float:
    started = time.perf_counter()
    async with asyncio.timeout(120):
        while len(stub.agents) < agents:
            await asyncio.sleep(0.05)
    return time.perf_counter() - started


async def drive(stub: StubManager, per_s: float, seconds: float) -> None:
    """Order kernels at an even rate, round robin over the agents."""
    turns = itertools.cycle(list(stub.agents))
    started = time.perf_counter()
    ordered = 0
    while (passed := time.perf_counter() - started) < seconds:
        due = int(passed * per_s)
        for _ in range(due - ordered):
            stub.order(next(turns))

        ordered = due
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def fleet(stub: StubManager, agents: int, options: list[str]) -> AsyncIterator[int]:
    with tempfile.TemporaryDirectory() as home:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage", "simulate", "--agents", str(agents), "--output", "json",
            "--manager", f"127.0.0.1:{stub.port}", "--home", home, *options,
            env=os.environ | {
                "MOORAGE_COMMON__LOG_LEVEL": "error", "MOORAGE_COMMON__LINK_TOKEN": TOKEN,
                "MOORAGE_COMMON__LINK_TLS": "off",
            },
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process.pid
        finally:
            process.terminate()
            await process.communicate()


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        / 1024
    )


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {"agents": args.agents}
    async with (
        StubManager() as stub,
        fleet(stub, args.agents, ["--run-time", "1s", *args.options]) as pid,
    ):
        results["connect_s"] = await wait_until_connected(stub, args.agents)
        await asyncio.sleep(3)
        results["rss_mib"] = rss_mib(pid)
        for name, per_s, seconds in (
            ("idle", 0.0, args.idle_s),
            *((f"{r:g}/s", r, args.s) for r in args.rates),
        ):
            stub.ready = 0
            stub.ended = 0
            stub.reports = 0
            stub.bytes = 0
            stub.ready_s.clear()
            cpu = cpu_s(pid)
            own_cpu = cpu_s(os.getpid())
            started = time.perf_counter()

            if per_s:
                await drive(stub, per_s, seconds)
            else:
                await asyncio.sleep(seconds)

            passed = time.perf_counter() - started
            cpu = cpu_s(pid) - cpu
            ready_s = sorted(stub.ready_s) or [0.0]
            results[name] = {
                "starts_per_s": stub.ready / passed,
                "ends_per_s": stub.ended / passed,
                "reports_per_s": stub.reports / passed,
                "bytes_per_report": stub.bytes / max(stub.reports, 1),
                "cores": cpu / passed,
                "cpu_us_per_kernel": cpu / stub.ready * 1e6 if stub.ready else None,
                "stub_cores": (cpu_s(os.getpid()) - own_cpu) / passed,
                "ready_ms_p50": statistics.median(ready_s) * 1000,
                "ready_ms_p99": ready_s[int(len(ready_s) * 0.99)] * 1000,
                "rss_mib": rss_mib(pid),
            }
            await asyncio.sleep(2)

    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[500, 2000], help="kernel starts per second"
    )
    parser.add_argument("--s", type=float, default=8, help="seconds per rate")
    parser.add_argument("--idle-s", type=float, default=10)
    parser.add_argument(
        "--json", type=Path, default=Path(__file__).parent / "results" / "simulate.json"
    )
    parser.add_argument(
        "options", nargs="*", help="after --: further options of `moorage simulate`"
    )
    args = parser.parse_args()
    host = machine()
    results = asyncio.run(measure(args))
    print(machine_line(host))
    print(
        f"{results['agents']} agents: connected in {results['connect_s']:.1f} s, {results['rss_mib']:.0f} MiB"
    )
    print(
        "| kernels ordered | started/s | ended/s | reports/s | cores | CPU us per kernel | ready p50/p99 ms |"
    )
    print("|---|---|---|---|---|---|---|")

    for name, row in results.items():
        if isinstance(row, dict):
            each = f"{row['cpu_us_per_kernel']:.0f}" if row["cpu_us_per_kernel"] else "-"
            print(
                f"| {name} | {row['starts_per_s']:.0f} | {row['ends_per_s']:.0f} "
                f"| {row['reports_per_s']:.0f} | {row['cores']:.2f} (stub {row['stub_cores']:.2f}) | {each} "
                f"| {row['ready_ms_p50']:.1f} / {row['ready_ms_p99']:.1f} |"
            )

    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps({"machine": host} | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
