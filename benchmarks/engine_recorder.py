"""Recording proxy between the agent and its Docker Engine, with the response time of each
request."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_REQUEST = re.compile(rb"^([A-Z]+) (?:/v[0-9.]+)?(/\S*) HTTP/1\.1\r\n")
# Names and ids of containers, which are replaced by ID in recorded paths.
_NAME = re.compile(r"/(moorage-[0-9a-f-]+|[0-9a-f]{64})")


@dataclass
class EngineRecorder:
    """``requests``: method and path, time of the request (unix seconds), and seconds until the
    response began."""

    requests: list[tuple[str, float, float]] = field(default_factory=list)

    def between(self, start: float, end: float) -> list[tuple[str, float]]:
        return [(request, took) for request, at, took in self.requests if start <= at <= end]

    async def relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Path
    ) -> None:
        """Relay one connection."""
        try:
            engine_reader, engine_writer = await asyncio.open_unix_connection(str(engine))
        except OSError:
            writer.close()
            return

        pending: list[tuple[str, float, float]] = []

        async def forward_requests() -> None:
            while data := await reader.read(1 << 16):
                if match := _REQUEST.match(data):
                    path = _NAME.sub("/ID", match[2].decode().partition("?")[0])
                    pending.append(
                        (f"{match[1].decode()} {path}", time.time(), time.perf_counter())
                    )
                engine_writer.write(data)
                await engine_writer.drain()
            engine_writer.close()

        async def forward_responses() -> None:
            while data := await engine_reader.read(1 << 16):
                if pending:
                    request, at, started = pending.pop()
                    self.requests.append((request, at, time.perf_counter() - started))
                writer.write(data)
                await writer.drain()
            writer.close()

        with suppress(OSError):
            await asyncio.gather(forward_requests(), forward_responses())


@asynccontextmanager
async def recording(engine: Path, socket: Path) -> AsyncIterator[EngineRecorder]:
    """``socket``: given to the agent instead of the engine's socket."""
    recorder = EngineRecorder()
    server = await asyncio.start_unix_server(lambda r, w: recorder.relay(r, w, engine), str(socket))
    try:
        yield recorder
    finally:
        server.close()
