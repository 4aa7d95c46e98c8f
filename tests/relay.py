"""A relay for TCP connections that can be interrupted like an unplugged network: nothing is closed,
and nothing arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage.common.aio.tasks import cancel_and_wait, spawn


class Relay:
    """``address``: where it listens. ``passing``: whether bytes get through; otherwise they wait.
    ``delay_s``: the delay in each direction."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self.address = ""
        self.delay_s = 0.0
        self.passing = asyncio.Event()
        self.passing.set()
        self._connections: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = spawn("relay", self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def close(self) -> None:
        await cancel_and_wait(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return

        try:
            async with asyncio.TaskGroup() as copies:
                copies.create_task(self._copy(reader, back))
                copies.create_task(self._copy(there, writer))
        finally:
            writer.transport.abort()
            back.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                await self.passing.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)

                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relay_to(target: str) -> AsyncIterator[Relay]:
    relay = Relay(target)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    relay.address = f"{host}:{port}"
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
