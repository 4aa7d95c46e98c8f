"""Benchmark of models on a supercomputer, with the test server: the relay, and the runtime's calls.

    python benchmarks/hpc.py [--n 200] [--streams 50] [--jobs 500] [--minutes 3] [--check]
    python benchmarks/hpc.py --handover [--walltime 180] [--rate 20] [--check]

Relay: three ways to the same small engine, in turn: directly, through the server's own stream call,
and through the relay of the agent and the one in the job. Each program has its own process.

Sync: one pass of the runtime over all jobs of an account. Calls: HEAppE calls of a runtime with its
default intervals, with 1 and 50 models whose health an agent checks, in real time.

Handover: a platform of real processes serves a model at a constant rate until a second job has
replaced the first at its walltime. Overlap is the time during which both jobs run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from measuring import machine, machine_line
from moorage.agent.runtimes.base import Handle, Launch
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.records import JobRecords
from moorage.agent.runtimes.heappe.relay import Relay
from moorage.agent.runtimes.heappe.runtime import HeappeRules, HeappeRuntime
from moorage.agent.runtimes.heappe.site import SiteChoice
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper, TunnelTarget
from moorage.agent.runtimes.heappe.wire import JobState
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import KernelId
from moorage.common.model.status import ObservedState

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for tests.heappe
ENGINE = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.heappe.engine"
IN_JOB = f"{sys.executable} {ROOT}/deploy/heappe/moorage_job.py progress.txt"
HOST = "127.0.0.1"
WAYS = ("direct", "server", "relay")
# Goals for the time that the relay adds to the server's own time to first token, and for one sync
# of all jobs.
ADDED_MS = 5.0
SYNC_S = 1.0
SYNC_CPU_MS = 100.0
# How much longer than the new job's loading time both jobs may run.
OVERLAP_S = 60.0
SETTLE_S = 15.0


@asynccontextmanager
async def program(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def start_job(
    client: HeappeClient, name: str, template: int, launch: dict[str, Any] | None = None
) -> tuple[int, TunnelTarget]:
    """Run a job until its port is known. Returns its task and where it listens."""
    from tests.heappe.client import specification

    given = specification(name, CommandTemplateId=template, WalltimeLimit=3600)
    job = await client.create_job(given)
    if launch is not None:
        await client.upload(job.id, job.task.id, "launch.json", json.dumps(launch).encode())

    await client.submit_job(job.id, 2)
    for _ in range(300):
        await asyncio.sleep(0.2)
        seen = await client.job(job.id)
        if seen.state is not JobState.RUNNING:
            continue

        task = seen.task.id
        parts = await client.file_parts(job.id, {(task, 1): 0})
        if parts and parts[0].content.strip():
            break
    else:
        raise SystemExit(f"job {name} does not listen within a minute")

    told = json.loads(parts[0].content.splitlines()[0])
    port, key = (told, "") if isinstance(told, int) else (told["port"], told["key"])
    return task, TunnelTarget((await client.node_ips(task))[0], port, key)


@dataclass
class Paths:
    """``direct`` and ``relayed`` are URLs; ``keeper`` and ``client`` lead through the server
    alone."""

    direct: str
    relayed: str
    client: HeappeClient
    keeper: TunnelKeeper
    session: aiohttp.ClientSession

    async def stream(self, way: str, asked: dict[str, Any]) -> tuple[float, int, int]:
        """Seconds to the first piece, number of pieces, and number of events."""
        began = time.perf_counter()
        first = 0.0
        pieces = 0
        text = b""
        async with self._open(way, asked) as content:
            while data := await content.readany():
                first = first or time.perf_counter() - began
                pieces += 1
                text += data

        assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
        return first, pieces, text.count(b"data: ")

    @asynccontextmanager
    async def _open(self, way: str, asked: dict[str, Any]) -> AsyncIterator[aiohttp.StreamReader]:
        payload = json.dumps(asked)
        if way == "server":
            kind = {"content-type": "application/json"}
            tunnel = (await self.keeper.way()).tunnel
            async with self.client.stream(tunnel, "/v1/chat/completions", kind, payload) as content:
                yield content

            return

        url = self.direct if way == "direct" else self.relayed
        async with self.session.post(f"{url}/v1/chat/completions", json=asked) as got:
            assert got.status == 200, await got.text()
            yield got.content


@asynccontextmanager
async def paths() -> AsyncIterator[Paths]:
    from tests.addresses import free_port

    clock = SystemClock()
    server_argv = [
        "-m",
        "tests.heappe",
        "--poll-s",
        "0.5",
        "--command",
        IN_JOB,
        "--command",
        ENGINE,
    ]
    async with program(sys.executable, *server_argv) as server:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        client = HeappeClient(Account(url, "agent", "secret-agent"), clock)
        launch = {
            "argv": [sys.executable, "-m", "tests.heappe.engine", "@MOORAGE_PORT@"],
            "env": {"PYTHONPATH": str(ROOT)}, "serves": True, "heartbeat_s": 0, "grace_s": 1,
        }  # fmt: skip
        task, target = await start_job(client, "relayed", 11, launch)
        relayed = TunnelKeeper(client, task, target, clock)
        task, target = await start_job(client, "plain", 12)
        keeper = TunnelKeeper(client, task, target, clock)
        relay = Relay(client, lambda: relayed)
        port = free_port()
        await relay.listen(HOST, port)
        direct = f"http://{target.node}:{target.port}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            try:
                yield Paths(
                    direct, f"http://{HOST}:{port}", client=client, keeper=keeper, session=session
                )
            finally:
                await relay.close()
                await client.close()


async def measure_relay(options: argparse.Namespace) -> dict[str, Any]:
    first: dict[str, list[float]] = {way: [] for way in WAYS}
    async with paths() as found:
        asked = {"messages": [], "max_tokens": 4, "stream": True}
        for way in WAYS:
            for attempt in range(100):
                try:
                    await found.stream(way, asked)
                    break
                except (AssertionError, aiohttp.ClientError):
                    assert attempt < 99, f"{way} does not answer"
                    await asyncio.sleep(0.2)

        for _ in range(options.n):
            for way in WAYS:
                first[way].append((await found.stream(way, asked))[0] * 1000)

        slow = {"messages": [], "max_tokens": 50, "pause_ms": 20, "stream": True}
        walls = {}
        for way in ("relay", "direct"):
            began = time.perf_counter()
            await asyncio.gather(*(found.stream(way, slow) for _ in range(options.streams)))
            walls[way] = time.perf_counter() - began

        pieces, events = (await found.stream("relay", slow))[1:]

    middle = {way: statistics.median(first[way]) for way in WAYS}
    late = {way: statistics.quantiles(first[way], n=20)[-1] for way in WAYS}
    return {"p50": middle, "p95": late, "walls": walls, "pieces": pieces, "events": events}


@asynccontextmanager
async def runtime(engine: str) -> AsyncIterator[tuple[HeappeRuntime, Counter[str]]]:
    """A runtime with its default intervals and the calls that it makes, and a server that plays its
    jobs."""
    from tests.addresses import free_port

    argv = ["-m", "tests.heappe", "--profile", "6.3.2", "--poll-s", "1", "--engine", engine]
    async with program(sys.executable, *argv) as server:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        clock = SystemClock()
        client = HeappeClient(Account(url, "agent", "secret-agent"), clock)
        with tempfile.TemporaryDirectory() as folder:
            made = HeappeRuntime(
                client, JobRecords(Path(folder) / "jobs"),
                LogStore(Path(folder) / "logs"), HeappeRules(1000, SiteChoice("EXA-00-1", node_type="gpu")),
                clock=clock, identity="benchmark", host=HOST, allocate=free_port,
            )  # fmt: skip
            try:
                yield made, client.transport.calls
            finally:
                await made.close()


async def create(made: HeappeRuntime, count: int, *, serves: bool) -> list[Handle]:
    limit = asyncio.Semaphore(20)

    async def one() -> Handle:
        async with limit:
            kernel = KernelId(SystemClock().new_id())
            return await made.create(Launch(kernel, ("engine",), {}, serves=serves))

    return await asyncio.gather(*(one() for _ in range(count)))


async def measure_sync(options: argparse.Namespace) -> dict[str, float]:
    async with runtime("none") as (made, _):
        await create(made, options.jobs, serves=False)
        walls = []
        cpus = []
        for _ in range(7):
            wall = time.perf_counter()
            cpu = time.process_time()
            await made.book.sync()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)

        return {"wall_s": statistics.median(walls), "cpu_ms": 1000 * statistics.median(cpus)}


async def measure_calls(options: argparse.Namespace, jobs: int) -> float:
    """HEAppE calls per job and minute once all run."""
    async with runtime("played") as (made, calls), aiohttp.ClientSession() as session:
        handles = await create(made, jobs, serves=True)

        async def look_after(handle: Handle) -> None:
            last = ObservedState.CREATING
            while True:
                await made.wait(handle, last)
                last = (await made.observe(handle)).state

        async def check(handle: Handle) -> None:
            while True:
                address = (await made.observe(handle)).address
                if address is not None:
                    async with session.get(f"http://{address[0]}:{address[1]}/health"):
                        pass
                await asyncio.sleep(made.capabilities.check_interval_s)

        tasks = [
            asyncio.ensure_future(work(handle))
            for handle in handles
            for work in (look_after, check)
        ]
        try:
            for _ in range(600):
                states = {(await made.observe(handle)).state for handle in handles}
                if states == {ObservedState.RUNNING}:
                    break

                await asyncio.sleep(0.5)

            await asyncio.sleep(SETTLE_S)
            before = sum(calls.values())
            await asyncio.sleep(60 * options.minutes)
            return (sum(calls.values()) - before) / jobs / options.minutes
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def measure(options: argparse.Namespace) -> int:
    about = machine()
    relay = await measure_relay(options)
    sync = await measure_sync(options)
    print(machine_line(about))
    print("\n| way | first token p50 / p95 ms | added p50 ms |\n|---|---:|---:|")
    before = 0.0
    for way in WAYS:
        added = relay["p50"][way] - before if before else 0.0
        before = relay["p50"][way]
        print(f"| {way} | {before:.2f} / {relay['p95'][way]:.2f} | {added:.2f} |")

    walls = relay["walls"]
    print(
        f"\n{options.streams} streams at once through one tunnel: all complete in {walls['relay']:.2f} s"
    )
    print(
        f"({walls['direct']:.2f} s directly); one in {relay['pieces']} pieces for {relay['events']} events"
    )
    print(
        f"sync of {options.jobs} jobs: {sync['wall_s']:.3f} s of wall, {sync['cpu_ms']:.0f} ms of CPU"
    )
    late = relay["p50"]["relay"] - relay["p50"]["server"] > ADDED_MS
    slow = sync["wall_s"] > SYNC_S or sync["cpu_ms"] > SYNC_CPU_MS
    many = False
    for jobs, limit in ((1, 4.0), (50, 1.0)) if options.minutes else ():
        calls = await measure_calls(options, jobs)
        many = many or calls > limit
        print(f"HEAppE calls per job and minute with {jobs} running: {calls:.2f} (goal {limit:g})")

    return 1 if options.check and (late or slow or many) else 0


async def measure_handover(options: argparse.Namespace) -> int:
    from handover import hand_over

    about = machine()
    found = await hand_over(options.walltime, options.rate)
    print(machine_line(about))
    print(f"\nwalltime {options.walltime} s, {options.rate:g} requests/s: {found.load.summary()}")
    print(
        f"overlap {found.overlap_s:.1f} s, load {found.load_s:.1f} s (goal: load + {OVERLAP_S:g} s)"
    )
    late = found.overlap_s > found.load_s + OVERLAP_S

    return 1 if options.check and (late or found.load.failed()) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Relay and calls of the HEAppE runtime.")
    parser.add_argument("--n", type=int, default=200, help="requests on each way")
    parser.add_argument("--streams", type=int, default=50, help="streams at once")
    parser.add_argument("--jobs", type=int, default=500, help="jobs of a sync")
    parser.add_argument(
        "--minutes", type=float, default=3, help="minutes to count calls for; 0: not at all"
    )
    parser.add_argument("--check", action="store_true", help="fail beyond the goal")
    parser.add_argument(
        "--handover", action="store_true", help="measure the handover at a walltime instead"
    )
    parser.add_argument("--walltime", type=int, default=180, help="of a job, in seconds")
    parser.add_argument(
        "--rate", type=float, default=20, help="requests a second during the handover"
    )
    options = parser.parse_args()

    return asyncio.run(measure_handover(options) if options.handover else measure(options))


if __name__ == "__main__":
    sys.exit(main())
