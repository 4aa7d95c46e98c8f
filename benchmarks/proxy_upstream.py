"""Upstream of the proxy benchmark: an engine on asyncio protocols that is not a bottleneck.

    proxy_upstream.py PORT FILE [HOST]

Writes its process id and port into FILE (a directory: into a file of its own there). Answers a chat
with a short completion, or with a token each ``interval_ms`` until the client leaves, if its body
has ``"stream":true``. A token contains the time at which it was created, in nanoseconds of the
monotonic clock. A body with ``"fault":"die"`` ends its stream in the middle, one with
``"fault":"drop"`` gets no response.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

MESSAGE = {"role": "assistant", "content": "Aye."}
COMPLETION = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    },
    separators=(",", ":"),
).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
JSON = OK + b"Content-Length: %d\r\n\r\n" % len(COMPLETION) + COMPLETION
MODELS = (
    b'{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"bench"}]}'
)
LIST = OK + b"Content-Length: %d\r\n\r\n" % len(MODELS) + MODELS
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
DELTA = '{"index":0,"delta":{"content":" aye"},"finish_reason":null}'
BEFORE = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",'
    b'"choices":[' + DELTA.encode() + b'],"t":"'
)
AFTER = b'"}\n\n'
TOKEN_BYTES = len(BEFORE) + 20 + len(AFTER)
BEFORE = b"%x\r\n" % TOKEN_BYTES + BEFORE
AFTER = AFTER + b"\r\n"
INTERVAL = re.compile(rb'"interval_ms": ?(\d+)')
# Tokens that a client has not received by then are not created, because they could not arrive in
# time anyway.
_HELD_BYTES = 65_536


class Pacer:
    """Streams by interval, spread over its milliseconds."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[int, list[set[asyncio.Transport]]] = {}
        self._next = 0
        self._tick = 0
        self._is_running = False
        self._began = self._loop.time()

    def add(self, transport: asyncio.Transport, interval_ms: int) -> Callable[[], None]:
        buckets = self._buckets.setdefault(interval_ms, [set() for _ in range(interval_ms)])
        self._next += 1
        bucket = buckets[self._next % interval_ms]
        bucket.add(transport)

        if not self._is_running:
            self._began = self._loop.time()
            self._is_running = True
            self._tick = 0
            self._loop.call_soon(self._run)

        return lambda: bucket.discard(transport)

    def _run(self) -> None:
        if not any(any(buckets) for buckets in self._buckets.values()):
            self._is_running = False
            return

        due = int((self._loop.time() - self._began) * 1000)
        while self._tick < due:
            self._tick += 1
            for interval, buckets in self._buckets.items():
                for transport in buckets[self._tick % interval]:
                    if transport.get_write_buffer_size() < _HELD_BYTES:
                        transport.write(BEFORE + b"%020d" % time.monotonic_ns() + AFTER)

        self._loop.call_at(self._began + (self._tick + 1) / 1000, self._run)


class Connection(asyncio.Protocol):
    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._rest = b""
        self._forget: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport

    def connection_lost(self, exc: BaseException | None) -> None:
        self._forget()

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        while (end := data.find(b"\r\n\r\n") + 4) > 3:
            size = _body_size(data[:end], data[end:])
            if size < 0 or len(data) < end + size:
                break
            self._answer(data[:3] == b"GET", data[end : end + size])
            data = data[end + size :]
        self._rest = data

    def _answer(self, is_get: bool, body: bytes) -> None:
        if is_get:
            self._transport.write(LIST)
        elif b'"fault"' in body:
            if b'"die"' in body:
                self._transport.write(STREAM + BEFORE + b"%020d" % time.monotonic_ns() + AFTER)
            asyncio.get_running_loop().call_later(0.005, self._transport.abort)
        elif b'"stream":true' in body or b'"stream": true' in body:
            found = INTERVAL.search(body)
            self._transport.write(STREAM)
            self._forget = self._pacer.add(self._transport, int(found[1]) if found else 5)
        else:
            self._transport.write(JSON)


def _body_size(head: bytes, rest: bytes) -> int:
    """-1 while it is not known."""
    head = head.lower()
    at = head.find(b"content-length:")
    if at >= 0:
        return int(head[at + 15 : head.index(b"\r", at)])
    if b"transfer-encoding: chunked" in head:
        end = rest.find(b"0\r\n\r\n")
        return end + 5 if end >= 0 else -1
    return 0


async def main(port: int, file: Path, host: str = "127.0.0.1") -> None:
    pacer = Pacer()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(pacer), host, port, backlog=8192
    )
    bound = server.sockets[0].getsockname()[1]
    if file.is_dir():
        file /= str(os.getpid())

    partial = file.with_suffix(".new")
    partial.write_text(f"{os.getpid()} {bound}")
    partial.rename(file)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
