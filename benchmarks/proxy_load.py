"""Load generators of the proxy benchmark, on asyncio protocols: as many requests as possible, paced
streams, and requests at fixed times."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

Address = tuple[str, int]
_TOKEN = re.compile(rb'"t":"(\d{20})"')
_TOKEN_BYTES = 27
_CONNECT_S = 30.0


def request(body: bytes, key: str) -> bytes:
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key.encode(), len(body))
    ) + body


class Asker(asyncio.Protocol):
    """One connection with one request at a time. ``done`` is called with each response's status."""

    def __init__(self) -> None:
        self.done: Callable[[int], None] = lambda status: None
        self.lost: Callable[[], None] = lambda: None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost()

    def send(self, request: bytes) -> None:
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        end = data.find(b"\r\n\r\n")
        if end < 0 or not _is_complete(data, end):
            self._rest = data
            return
        self._rest = b""
        self.done(int(data[9:12]))


def _is_complete(data: bytes, end: int) -> bool:
    head = data[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return data.endswith(b"0\r\n\r\n")
    stop = head.find(b"\r\n", at + 2)
    return len(data) >= end + 4 + int(head[at + 17 : stop if stop > 0 else end])


async def connect(address: Address) -> Asker:
    async with asyncio.timeout(_CONNECT_S):
        _, protocol = await asyncio.get_running_loop().create_connection(Asker, *address)
    return protocol


async def flood(
    address: Address, body: bytes, key: str, connections: int, *, seconds: float
) -> tuple[int, int]:
    """Sends as many requests as possible, and counts those answered with 200 and those that
    failed."""
    if wrk := shutil.which("wrk"):
        return await asyncio.to_thread(
            _wrk, wrk, address, body, key, connections=connections, seconds=seconds
        )

    answered = failed = 0
    message = request(body, key)
    stopping = False
    askers = [await connect(address) for _ in range(connections)]

    def ask(asker: Asker) -> None:
        def done(status: int) -> None:
            nonlocal answered, failed
            answered, failed = (answered + 1, failed) if status == 200 else (answered, failed + 1)
            if not stopping:
                asker.send(message)

        asker.done = done
        asker.send(message)

    for asker in askers:
        ask(asker)

    await asyncio.sleep(seconds)
    stopping = True
    for asker in askers:
        asker.transport.abort()

    return answered, failed


def _wrk(
    wrk: str, address: Address, body: bytes, key: str, *, connections: int, seconds: float
) -> tuple[int, int]:
    script = Path(f"/tmp/moorage-wrk-{connections}.lua")
    script.write_text(
        f'wrk.method = "POST"\nwrk.body = [[{body.decode()}]]\n'
        f'wrk.headers["Content-Type"] = "application/json"\nwrk.headers["Authorization"] = "Bearer {key}"\n'
    )
    url = f"http://{address[0]}:{address[1]}/v1/chat/completions"
    command = [
        wrk,
        "-t1",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        "--timeout",
        "10s",
        "-s",
        str(script),
        url,
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    script.unlink()
    total = re.search(r"(\d+) requests in", text)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    errors = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text
    )
    failed = (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0)

    return (int(total[1]) if total else 0) - (int(bad[1]) if bad else 0), failed


@dataclass
class Streams:
    """Open streams. ``tokens`` and ``transit_ns`` cover the tokens that arrived since ``begin``."""

    streams: list[asyncio.Transport] = field(default_factory=list)
    lost: int = 0
    tokens: int = 0
    transit_ns: list[int] = field(default_factory=list)
    started: set[int] = field(default_factory=set)

    def begin(self) -> None:
        self.tokens = 0
        self.transit_ns.clear()

    async def open(self, address: Address, count: int, interval_ms: int, key: str) -> None:
        body = (
            b'{"model":"bench","stream":true,"messages":[],"metadata":{"interval_ms":%d}}'
            % interval_ms
        )
        message = request(body, key)
        loop = asyncio.get_running_loop()
        for at in range(0, count, 64):
            made = await asyncio.gather(
                *(
                    loop.create_connection(lambda n=n: _Stream(self, n), *address)
                    for n in range(at, min(at + 64, count))
                )
            )
            for transport, _ in made:
                transport.write(message)
                self.streams.append(transport)

            await asyncio.sleep(0.005)

    def close(self) -> None:
        for transport in self.streams:
            transport.abort()
        self.streams.clear()


class _Stream(asyncio.Protocol):
    def __init__(self, streams: Streams, number: int) -> None:
        self._streams = streams
        self._number = number
        self._tail = b""

    def connection_lost(self, exc: BaseException | None) -> None:
        self._streams.lost += 1

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._tail:
            data = self._tail + data

        streams = self._streams
        end = 0
        for match in _TOKEN.finditer(data):
            streams.tokens += 1
            streams.transit_ns.append(now - int(match[1]))
            end = match.end()

        if end:
            streams.started.add(self._number)

        self._tail = data[end:][-_TOKEN_BYTES:]


async def at_fixed_times(
    address: Address, body: bytes, key: str, per_s: float, *, seconds: float
) -> tuple[list[float], int]:
    """Latencies in seconds of requests sent at fixed times, whether or not earlier ones were
    answered, and the number of failures."""
    message = request(body, key)
    idle = [await connect(address) for _ in range(32)]
    latencies: list[float] = []
    failed = 0
    loop = asyncio.get_running_loop()
    began = loop.time() + 0.05
    for number in range(round(per_s * seconds)):
        while (pause := began + number / per_s - loop.time()) > 0.0002:
            await asyncio.sleep(pause)

        asker = idle.pop() if idle else await connect(address)

        def done(status: int, asker: Asker, sent_at: float) -> None:
            nonlocal failed
            latencies.append(time.perf_counter() - sent_at)
            failed += status != 200
            idle.append(asker)

        asker.done = partial(done, asker=asker, sent_at=time.perf_counter())
        asker.send(message)

    await asyncio.sleep(0.3)
    for asker in idle:
        asker.transport.abort()

    return latencies, failed
