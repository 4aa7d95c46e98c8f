"""Soak of the proxy: clients that connect, send requests, stream and leave at any time, and
replicas that fail and are killed, for any length of time. Memory, descriptors and in-flight counts
must stay flat."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sys
from pathlib import Path
from typing import Any

from measuring import Caller, median, rss_mb
from proxy_load import request
from proxy_peers import CHAT, Proxy, Site, proxies, site

STREAM = b'{"model":"bench","stream":true,"messages":[],"metadata":{"interval_ms":10}}'
DIES = b'{"model":"bench","stream":true,"messages":[],"metadata":{"fault":"die"}}'
DROPS = b'{"model":"bench","messages":[],"metadata":{"fault":"drop"}}'
BAD = b'{"model":"bench","messages":[]'
CLIENTS = 64
REPLICAS = 3
KILL_EVERY_S = 20.0
SAMPLE_S = 5.0
# Growth of the proxy's memory from the second fifth to the last, and descriptors beside those of
# the start.
MAX_GROWTH = 0.10
MAX_GROWN_MB = 16.0
MAX_DESCRIPTORS = 30


async def client(
    proxy: Proxy, counts: dict[str, int], per_s: float, stopping: asyncio.Event
) -> None:
    """Sends requests on one connection after another, and leaves at random. ``per_s``: 0 means as
    often as possible."""
    while not stopping.is_set():
        try:
            async with asyncio.timeout(30):
                reader, writer = await asyncio.open_connection(*proxy.address)
                try:
                    for _ in range(random.randrange(1, 20)):
                        await asyncio.sleep(random.expovariate(per_s) if per_s else 0)
                        await ask(reader, writer, proxy.key, counts)
                finally:
                    writer.transport.abort()
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str, counts: dict[str, int]
) -> None:
    body = random.choices((CHAT, STREAM, DIES, DROPS, BAD), (60, 20, 5, 3, 2))[0]
    message = request(body, key)
    if random.random() < 0.03:
        writer.write(message[: random.randrange(len(message))])  # and leaves
        await asyncio.sleep(0.02)
        raise EOFError

    writer.write(message)
    if random.random() < 0.05:
        raise EOFError  # leaves without waiting

    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = head[9:12].decode()
    counts[status] = counts.get(status, 0) + 1
    if body is STREAM and status == "200":
        left = random.randrange(1, 5000)
        while (
            left > 0 and (data := await reader.read(left)) and not data.endswith(b"\r\n0\r\n\r\n")
        ):
            left -= len(data)

        raise EOFError  # leaves in the middle

    if found := re.search(rb"content-length: (\d+)", head):
        await reader.readexactly(int(found[1]))
    else:
        await reader.readuntil(b"\r\n0\r\n\r\n")


async def kill_replicas(site: Site, stopping: asyncio.Event) -> int:
    killed = 0
    while True:
        try:
            async with asyncio.timeout(KILL_EVERY_S):
                await stopping.wait()
            return killed
        except TimeoutError:
            pass

        kernels = site.kernels()
        if len(kernels) > 1:
            os.kill(random.choice(list(kernels)), signal.SIGKILL)
            killed += 1


async def in_flight(proxy: Proxy) -> float:
    caller = Caller("127.0.0.1", proxy.internal, proxy.key)
    _, body = await caller.call("GET", "/metrics")
    caller.close()
    return sum(
        float(line.split()[-1]) for line in body.decode().splitlines() if _counts_requests(line)
    )


def _counts_requests(line: str) -> bool:
    return line.startswith("moorage_proxy_in_flight{")


async def soak(seconds: float, per_s: float) -> dict[str, Any]:
    """``per_s``: requests of all clients; 0 means as many as possible."""
    async with site(REPLICAS) as started, proxies(started, ["moorage"]) as running:
        proxy = running["moorage"]
        counts = dict[str, int]()
        stopping = asyncio.Event()
        await asyncio.sleep(2)
        before = descriptors(proxy.pid)
        clients = [
            asyncio.create_task(client(proxy, counts, per_s / CLIENTS, stopping))
            for _ in range(CLIENTS)
        ]
        killing = asyncio.create_task(kill_replicas(started, stopping))
        memory: list[float] = []
        for _ in range(round(seconds / SAMPLE_S)):
            await asyncio.sleep(SAMPLE_S)
            memory.append(rss_mb(proxy.pid, "RssAnon"))

        stopping.set()
        await asyncio.gather(*clients)
        killed = await killing
        await asyncio.sleep(8)  # idle connections to replicas are closed
        found = {
            "seconds": seconds,
            "requests": counts,
            "killed": killed,
            "in_flight": await in_flight(proxy),
            "descriptors": (before, descriptors(proxy.pid)),
            "memory_mb": memory,
        }

    fifth = max(1, len(memory) // 5)
    early = median(memory[fifth : 2 * fifth] or memory)
    late = median(memory[-fifth:])
    total = sum(counts.values())
    print(
        f"{total} requests in {seconds:g} s, {killed} replicas killed: {dict(sorted(counts.items()))}"
    )
    print(
        f"memory {early:.1f} MB early, {late:.1f} MB late; descriptors {found['descriptors']}; in flight ",
        end="",
    )
    print(f"{found['in_flight']:g} after the last")
    grown = late - early
    if grown > max(MAX_GROWN_MB, MAX_GROWTH * early) or found["in_flight"]:
        sys.exit("the proxy leaks")
    if (descriptors_grown := found["descriptors"][1] - before) > MAX_DESCRIPTORS:
        sys.exit(f"the proxy leaks descriptors: {descriptors_grown}")

    return found


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
