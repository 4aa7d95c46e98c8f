"""Benchmark of nodes that only dial out: time to first token and throughput, against the same
engine reached directly.

A proxy's data plane, an agent's dial-out client and an engine run in separate processes, as daemons
do. Both ways are measured in one run, in shuffled turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import structlog
import uvloop

from moorage.agent.dialout.client import DialOut
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.certificates import new_key
from moorage.common.link.dial import Dialer
from moorage.common.link.identity import Identity, IdentityFile
from moorage.common.link.messages import KeyGrant, ModelRoute, RouteTable, Target
from moorage.common.model.addresses import dial_out_host
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.views.peers import PeerKind
from moorage.manager.crypto.authority import CertificateAuthority, read_csr
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.dialout.listener import DialOutListener
from moorage.proxy.planes.asyncio import AsyncioPlane
from moorage.proxy.timeouts import Timeouts

CLOCK = SystemClock()
KEY = "mg-" + "k" * 40
WAYS = ("direct", "dialed")
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"token"}}]}' + b" " * 100 + b"\n\n"
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)


async def engine() -> None:
    """Answers ``{"bytes": n}`` with that many bytes, and ``{"events": n}`` with a stream of that
    many small events."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                asked = json.loads(await reader.readexactly(length))
                if size := asked.get("bytes"):
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: %d\r\n\r\n" % size
                    )
                    for _ in range(size // 65_536):
                        writer.write(bytes(65_536))
                        await writer.drain()

                    continue

                close = b"Connection: close\r\n" if asked.get("close") else b""
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Transfer-Encoding: chunked\r\n%s\r\n" % close
                )
                for _ in range(asked["events"]):
                    writer.write(CHUNK)
                    await writer.drain()

                writer.write(b"0\r\n\r\n")
                if close:
                    writer.close()
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    say(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def proxy(home: Path, engine_port: int, host: str) -> None:
    settings = ProxySettings(metering=False)
    router = RequestRouter(settings, ProxyMetrics(), randrange=random.Random(1).randrange)
    router.credentials.confirmed(CLOCK.monotonic(), 0)

    def model(name: str, where: str) -> ModelRoute:
        return ModelRoute(
            name, 1, (Target(SessionId(name), KernelId(name), where, engine_port, "key", "custom"),)
        )

    key = KeyGrant(sha256(KEY.encode()).hexdigest())
    router.update_table(
        RouteTable(1, (model("dialed", host), model("direct", "127.0.0.1")), (key,))
    )
    dialer = Dialer("127.0.0.1:1", identity=IdentityFile(home / "proxy.json"), clock=CLOCK)
    connector = Connector()
    connector.take_streams_of(await DialOutListener("127.0.0.1", 0, dialer, CLOCK).__aenter__())
    plane = AsyncioPlane(router, settings, CLOCK, Timeouts(), connector=connector)
    _, port = await plane.start("127.0.0.1", 0)
    say(port, connector.listener.address[1])
    await asyncio.Event().wait()


async def node(home: Path, engine_port: int, proxy_port: int) -> None:
    dialer = Dialer("127.0.0.1:1", identity=IdentityFile(home / "agent.json"), clock=CLOCK)
    agent = DialOut("node-1", "127.0.0.1", {engine_port}.__contains__, dialer, clock=CLOCK)
    agent.set_proxies([f"127.0.0.1:{proxy_port}"])
    while not agent.connected:
        await asyncio.sleep(0.01)
    say(0)
    await asyncio.Event().wait()


def say(*numbers: int) -> None:
    print(*numbers, flush=True)


class Process:
    """This file in another role. ``numbers``: the numbers that it prints once it is ready."""

    def __init__(self, *role: object) -> None:
        command = [sys.executable, __file__, "--role", *map(str, role)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.numbers = [int(word) for word in self._process.stdout.readline().split()]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Client:
    def __init__(self, port: int) -> None:
        self._port = port

    async def ask(self, way: str, read: int = 1 << 18, **asked: Any) -> tuple[float, float, int]:
        """Seconds to the first byte of the body, and to its end; and its size."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        body = json.dumps({"model": way, "messages": [], **asked}).encode()
        began = time.perf_counter()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
            % (KEY.encode(), len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError((head + await reader.read(2000)).decode())

        size = len(await reader.read(1))
        first = time.perf_counter() - began
        while piece := await reader.read(read):
            size += len(piece)

        writer.close()
        return first, time.perf_counter() - began, size


def identities(home: Path) -> str:
    """Write those of a proxy and an agent. Returns the agent's host."""
    ca = CertificateAuthority(CertificateAuthority.create("secret", CLOCK.now()), "secret")
    kinds: tuple[tuple[PeerKind, str], ...] = (("proxy", "proxy-1"), ("agent", "node-1"))
    for kind, name in kinds:
        key, csr = new_key(name)
        now = CLOCK.now()
        valid = timedelta(hours=4)
        certificate = ca.sign_peer_certificate(
            read_csr(csr), kind, name, f"id-{kind}", now=now, lifetime=valid
        )
        found = Identity(
            f"id-{kind}",
            kind,
            name=name,
            resource_group=None,
            link="",
            key=key,
            certificate=certificate,
            authority=ca.certificate,
            begins=now,
            ends=now + valid,
        )
        IdentityFile(home / f"{kind}.json").store(found)

    return dial_out_host("node-1", "id-agent")


async def measure(
    port: int, rounds: int, megabytes: int, streams: int
) -> dict[str, dict[str, list[float]]]:
    client = Client(port)
    rng = random.Random(7)
    found: dict[str, dict[str, list[float]]] = {
        way: {"first_ms": [], "fresh_ms": [], "mib_s": [], "events_s": []} for way in WAYS
    }
    for _ in range(20):
        for way in WAYS:
            await client.ask(way, events=1)

    turns = [
        (way, kind)
        for way in WAYS
        for kind in ("first", "fresh", "bulk", "stream")
        for _ in range(rounds)
    ]
    rng.shuffle(turns)
    for way, kind in turns:
        if kind in ("first", "fresh"):
            # A request that first ends its connection, so that the next needs a new one to the
            # engine.
            await client.ask(way, events=1, close=kind == "fresh")
            for _ in range(40):
                first, _, _ = await client.ask(way, events=1, close=kind == "fresh")
                found[way][f"{kind}_ms"].append(1000 * first)
        elif kind == "bulk":
            _, seconds, size = await client.ask(way, bytes=megabytes << 20)
            found[way]["mib_s"].append(size / seconds / (1 << 20))
        else:
            began = time.perf_counter()
            await asyncio.gather(*(client.ask(way, events=1000) for _ in range(streams)))
            found[way]["events_s"].append(1000 * streams / (time.perf_counter() - began))

    return found


def show(found: dict[str, dict[str, list[float]]]) -> None:
    print(f"{'':34}{'direct':>12}{'dialed':>12}")
    kinds = {"first token": "first_ms", "first token, new connection": "fresh_ms"}
    for name, kind in kinds.items():
        for quantile, of in (("median", 50), ("p99", 99)):
            direct, dialed = (statistics.quantiles(found[way][kind], n=100)[of - 1] for way in WAYS)
            row(f"{name}, {quantile}, ms", direct, dialed, f"{dialed - direct:+.2f} ms")

    for name, kind in {"one response, MiB/s": "mib_s", "streams, events/s": "events_s"}.items():
        for what, choose in (("median", statistics.median), ("best", max)):
            direct, dialed = (choose(found[way][kind]) for way in WAYS)
            row(f"{name}, {what}", direct, dialed, f"{dialed / direct:.2f} x")


def row(name: str, direct: float, dialed: float, relation: str) -> None:
    print(f"{name:34}{direct:12.2f}{dialed:12.2f}   {relation}")


def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        running = list[Process]()
        try:
            host = identities(home)
            running.append(Process("engine"))
            (engine_port,) = running[-1].numbers
            running.append(Process("proxy", home, engine_port, host))
            port, dialout = running[-1].numbers
            running.append(Process("node", home, engine_port, dialout))
            found = uvloop.run(
                measure(port, arguments.rounds, arguments.megabytes, arguments.streams)
            )
        finally:
            for process in running:
                process.stop()

    show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--role", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

    match arguments.role:
        case ["engine"]:
            uvloop.run(engine())
        case ["proxy", home, engine_port, host]:
            uvloop.run(proxy(Path(home), int(engine_port), host))
        case ["node", home, engine_port, port]:
            uvloop.run(node(Path(home), int(engine_port), int(port)))
        case _:
            run(arguments)


if __name__ == "__main__":
    main()
