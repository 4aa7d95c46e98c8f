"""Between the agent and its Docker Engine: what is asked, and how long the engine takes for each question."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_REQUEST = re.compile(rb"^([A-Z]+) (?:/v[0-9.]+)?(/\S*) HTTP/1\.1\r\n")
# Of what is asked about a container: its name is another each time.
_NAME = re.compile(r"/(moorage-[0-9a-f-]+|[0-9a-f]{64})")


@dataclass
class Listener:
    """``asked``: what, when (unix seconds), and seconds until the engine began to answer."""

    asked: list[tuple[str, float, float]] = field(default_factory=list)

    def between(self, begin: float, end: float) -> list[tuple[str, float]]:
        return [(what, took) for what, at, took in self.asked if begin <= at <= end]

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: Path) -> None:
        try:
            answers, questions = await asyncio.open_unix_connection(str(engine))
        except OSError:
            writer.close()
            return
        open_question: list[tuple[str, float, float]] = []

        async def ask() -> None:
            while data := await reader.read(1 << 16):
                if match := _REQUEST.match(data):
                    path = _NAME.sub("/ID", match[2].decode().partition("?")[0])
                    open_question.append((f"{match[1].decode()} {path}", time.time(), time.perf_counter()))
                questions.write(data)
                await questions.drain()
            questions.close()

        async def answer() -> None:
            while data := await answers.read(1 << 16):
                if open_question:
                    what, at, begun = open_question.pop()
                    self.asked.append((what, at, time.perf_counter() - begun))
                writer.write(data)
                await writer.drain()
            writer.close()

        with suppress(OSError):
            await asyncio.gather(ask(), answer())


@asynccontextmanager
async def listening(engine: Path, at: Path) -> AsyncIterator[Listener]:
    """``at``: the socket that the agent is given instead of the engine's."""
    made = Listener()
    server = await asyncio.start_unix_server(lambda r, w: made._one(r, w, engine), str(at))
    try:
        yield made
    finally:
        server.close()
