"""What playing agents costs: idle agents with their heartbeats, and kernels begun and ended in bulk.

A stub of the manager in this process gives orders to `moorage simulate` in another, over real gRPC, and
counts what it reports. The stub stores nothing: what is measured is the player. The played fleet must not be
the bottleneck of a benchmark of the manager.
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
from moorage.common.link.exchange import OrdersOut, ReportsIn
from moorage.common.link.messages import Orders
from moorage.common.link.pb import agent_pb2, agent_pb2_grpc
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import DeviceGrant, KernelSpec
from moorage.common.model.status import ObservedState, SessionType

TOKEN = "bench"


class Seat:
    """One attached agent: what it is ordered, and since when."""

    def __init__(self, stub: Stub) -> None:
        self.stub, self.ordered, self.since = stub, dict[KernelId, KernelSpec](), dict[KernelId, float]()
        self.dirty = asyncio.Event()
        self.dirty.set()


class Stub(agent_pb2_grpc.AgentLinkServicer):
    """Orders kernels, withdraws those that ended, counts."""

    def __init__(self) -> None:
        self.seats: list[Seat] = []
        self.reports = self.ready = self.ended = self.bytes = 0
        self.ready_s: list[float] = []
        self._generations, self._ids = itertools.count(1), itertools.count(1)
        self._server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.http2.min_ping_interval_without_data_ms", 1_000)]
        )
        agent_pb2_grpc.add_AgentLinkServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    async def __aenter__(self) -> Stub:
        await self._server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._server.stop(grace=0)

    def order(self, seat: Seat) -> None:
        kernel_id = KernelId(f"01990000-0000-7000-8000-{next(self._ids):012x}")
        seat.ordered[kernel_id] = KernelSpec(
            kernel_id, SessionId(kernel_id), "bench", SessionType.BATCH, "process", "custom", "bench",
            command=("true",), slots={"cpu": 1000, "mem": 1 << 30, "cuda.device": 1},
            devices=(DeviceGrant("cuda.device", f"GPU-{kernel_id[-4:]}", 1000),), secret="a" * 32,
        )  # fmt: skip
        seat.since[kernel_id] = time.perf_counter()
        seat.dirty.set()

    async def Attach(self, reports: AsyncIterator[agent_pb2.Report], context: Any) -> None:
        seat, listening = Seat(self), ReportsIn()
        writer = asyncio.create_task(self._write(seat, context))
        self.seats.append(seat)
        states: dict[str, str] = {}
        try:
            async for wire in reports:
                self.reports += 1
                self.bytes += wire.ByteSize()
                listening.take(codec.report_from_wire(wire))
                for kernel in wire.kernels:
                    self._saw(seat, states, kernel.kernel_id, kernel.state)
                for kernel_id in wire.gone:
                    states.pop(kernel_id, None)
        finally:
            self.seats.remove(seat)
            writer.cancel()

    def _saw(self, seat: Seat, states: dict[str, str], kernel_id: str, state: str) -> None:
        before, states[kernel_id] = states.get(kernel_id), state
        if state != before and state == ObservedState.RUNNING:
            self.ready += 1
            if (since := seat.since.pop(KernelId(kernel_id), None)) is not None:
                self.ready_s.append(time.perf_counter() - since)
        if state != before and state == ObservedState.EXITED:
            self.ended += 1
            seat.ordered.pop(KernelId(kernel_id), None)
            seat.dirty.set()

    async def _write(self, seat: Seat, context: Any) -> None:
        out = OrdersOut()
        while True:
            await seat.dirty.wait()
            seat.dirty.clear()
            orders = Orders(next(self._generations), tuple(seat.ordered.values()))
            await context.write(codec.manager_message_to_wire(out.next(orders)))


async def attached(stub: Stub, agents: int) -> float:
    begun = time.perf_counter()
    async with asyncio.timeout(120):
        while len(stub.seats) < agents:
            await asyncio.sleep(0.05)
    return time.perf_counter() - begun


async def drive(stub: Stub, per_s: float, seconds: float) -> None:
    """Order kernels evenly, one agent after the other."""
    turn, begun, done = itertools.cycle(list(stub.seats)), time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        due = int(passed * per_s)
        for _ in range(due - done):
            stub.order(next(turn))
        done = due
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def fleet(stub: Stub, agents: int, more: list[str]) -> AsyncIterator[int]:
    with tempfile.TemporaryDirectory() as home:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "moorage", "simulate", "--agents", str(agents), "--output", "json",
            "--manager", f"127.0.0.1:{stub.port}", "--link-token", TOKEN, "--home", home, *more,
            env=os.environ | {"MOORAGE_COMMON__LOG_LEVEL": "error"}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process.pid
        finally:
            process.terminate()
            await process.communicate()


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"agents": args.agents}
    async with Stub() as stub, fleet(stub, args.agents, ["--run-s", "1", *args.more]) as pid:
        found["attach_s"] = await attached(stub, args.agents)
        await asyncio.sleep(3)
        found["rss_mib"] = rss_mib(pid)
        for name, per_s, seconds in (
            ("idle", 0.0, args.idle_s),
            *((f"{r:g}/s", r, args.s) for r in args.rates),
        ):
            stub.ready = stub.ended = stub.reports = stub.bytes = 0
            stub.ready_s.clear()
            cpu, own, begun = cpu_s(pid), cpu_s(os.getpid()), time.perf_counter()
            if per_s:
                await drive(stub, per_s, seconds)
            else:
                await asyncio.sleep(seconds)
            passed, cpu = time.perf_counter() - begun, cpu_s(pid) - cpu
            waits = sorted(stub.ready_s) or [0.0]
            found[name] = {
                "starts_per_s": stub.ready / passed,
                "ends_per_s": stub.ended / passed,
                "reports_per_s": stub.reports / passed,
                "bytes_per_report": stub.bytes / max(stub.reports, 1),
                "cores": cpu / passed,
                "cpu_us_per_kernel": cpu / stub.ready * 1e6 if stub.ready else None,
                "stub_cores": (cpu_s(os.getpid()) - own) / passed,
                "ready_ms_p50": statistics.median(waits) * 1000,
                "ready_ms_p99": waits[int(len(waits) * 0.99)] * 1000,
                "rss_mib": rss_mib(pid),
            }
            await asyncio.sleep(2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[500, 2000], help="kernel starts per second"
    )
    parser.add_argument("--s", type=float, default=8, help="seconds per rate")
    parser.add_argument("--idle-s", type=float, default=10)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "simulate.json")
    parser.add_argument("more", nargs="*", help="after --: more options of `moorage simulate`")
    args = parser.parse_args()
    about = machine()
    found = asyncio.run(measure(args))
    print(machine_line(about))
    print(f"{found['agents']} agents: attached in {found['attach_s']:.1f} s, {found['rss_mib']:.0f} MiB")
    print(
        "| kernels ordered | started/s | ended/s | reports/s | cores | CPU us per kernel | ready p50/p99 ms |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in found.items():
        if isinstance(row, dict):
            each = f"{row['cpu_us_per_kernel']:.0f}" if row["cpu_us_per_kernel"] else "-"
            print(
                f"| {name} | {row['starts_per_s']:.0f} | {row['ends_per_s']:.0f} "
                f"| {row['reports_per_s']:.0f} | {row['cores']:.2f} (stub {row['stub_cores']:.2f}) | {each} "
                f"| {row['ready_ms_p50']:.1f} / {row['ready_ms_p99']:.1f} |"
            )
    args.json.parent.mkdir(exist_ok=True)
    args.json.write_text(json.dumps({"machine": about} | found, indent=2) + "\n")


if __name__ == "__main__":
    main()
