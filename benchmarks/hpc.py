"""Benchmark of models on a supercomputer: what the relay adds to HEAppE, over the test server.

    python benchmarks/hpc.py [--n 200] [--streams 50] [--check]

Three ways to the same small engine, in turn: directly, through the server's own stream call, and through the
relay of the agent and the one in the job. Each program has a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from measuring import machine, machine_line
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.relay import Relay
from moorage.agent.runtimes.heappe.transport import Account
from moorage.agent.runtimes.heappe.tunnel import Target, TunnelKeeper
from moorage.agent.runtimes.heappe.wire import JobState
from moorage.common.aio.clock import SystemClock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for tests.heappe
ENGINE = f"env PYTHONPATH={ROOT} {sys.executable} -m tests.heappe.engine"
IN_JOB = f"{sys.executable} {ROOT}/deploy/heappe/moorage_job.py progress.txt"
HOST = "127.0.0.1"
ADDED_MS = 5.0  # goal: time to first token that the relay adds to the server's own


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
) -> tuple[int, Target]:
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
    return task, Target((await client.node_ips(task))[0], port, key)


@dataclass
class Paths:
    """``direct`` and ``relayed`` are URLs; ``keeper`` and ``client`` lead through the server alone."""

    direct: str
    relayed: str
    client: HeappeClient
    keeper: TunnelKeeper
    session: aiohttp.ClientSession

    async def stream(self, way: str, asked: dict[str, Any]) -> tuple[float, int, int]:
        """Seconds to the first piece; pieces; events."""
        began, first, pieces, text = time.perf_counter(), 0.0, 0, b""
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
    from tests.free_ports import free_port

    clock = SystemClock()
    server_argv = ["-m", "tests.heappe", "--poll-s", "0.5", "--command", IN_JOB, "--command", ENGINE]
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
                yield Paths(direct, f"http://{HOST}:{port}", client, keeper, session)
            finally:
                await relay.close()
                await client.close()


async def measure(options: argparse.Namespace) -> int:
    about = machine()
    ways = ("direct", "server", "relay")
    first: dict[str, list[float]] = {way: [] for way in ways}
    async with paths() as found:
        asked = {"messages": [], "max_tokens": 4, "stream": True}
        for way in ways:
            for attempt in range(100):
                try:
                    await found.stream(way, asked)
                    break
                except (AssertionError, aiohttp.ClientError):
                    assert attempt < 99, f"{way} does not answer"
                    await asyncio.sleep(0.2)
        for _ in range(options.n):
            for way in ways:
                first[way].append((await found.stream(way, asked))[0] * 1000)
        slow = {"messages": [], "max_tokens": 50, "pause_ms": 20, "stream": True}
        began = time.perf_counter()
        streams = await asyncio.gather(*(found.stream("relay", slow) for _ in range(options.streams)))
        wall = time.perf_counter() - began
        began = time.perf_counter()
        await asyncio.gather(*(found.stream("direct", slow) for _ in range(options.streams)))
        direct_wall = time.perf_counter() - began
        pieces, events = (await found.stream("relay", slow))[1:]
    print(machine_line(about))
    print("\n| way | first token p50 / p95 ms | added p50 ms |\n|---|---:|---:|")
    middle = {way: statistics.median(first[way]) for way in ways}
    before = 0.0
    for way in ways:
        added = middle[way] - before if before else 0.0
        print(
            f"| {way} | {middle[way]:.2f} / {statistics.quantiles(first[way], n=20)[-1]:.2f} | {added:.2f} |"
        )
        before = middle[way]
    print(f"\n{options.streams} streams at once through one tunnel: {len(streams)} complete in {wall:.2f} s")
    print(f"({direct_wall:.2f} s directly); one of them in {pieces} pieces for {events} events")
    late = middle["relay"] - middle["server"] > ADDED_MS
    return 1 if options.check and late else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="What the relay adds to HEAppE.")
    parser.add_argument("--n", type=int, default=200, help="requests on each way")
    parser.add_argument("--streams", type=int, default=50, help="streams at once")
    parser.add_argument("--check", action="store_true", help="fail beyond the goal")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
