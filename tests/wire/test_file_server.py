"""The file server of a session, as agents start it and proxies greet it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from moorage.agent.execution.file_server import FileServer, serve_files
from moorage.agent.runtimes.execution import STDERR
from moorage.common.model.commands import Channel, ExecEnd
from moorage.common.model.errors import Conflict
from moorage.common.sftp import wire
from moorage.common.sftp.framing import Packets
from moorage.common.sftp.wire import Attributes, PacketKind, PacketReader, SftpStatus
from moorage.proxy.ssh import backends
from moorage.proxy.ssh.backends import greeted

HELLO = wire.packet(PacketKind.INIT, wire.number(wire.VERSION))


class Link:
    """The path through the manager."""

    def __init__(self, server: FileServer) -> None:
        self.server = server
        self.end: ExecEnd | None = None

    async def send(self, data: bytes) -> None:
        await self.server.write(data)

    async def end_input(self) -> None:
        await self.server.end_input()

    async def resize(self, rows: int, cols: int) -> None: ...

    async def read(self) -> tuple[Channel, bytes] | None:
        if (output := await self.server.read()) is None:
            return None
        return (Channel.STDERR if output[0] == STDERR else Channel.STDOUT), output[1]


@asynccontextmanager
async def link_to(folder: Path) -> AsyncIterator[Link]:
    server = await serve_files(folder)
    try:
        yield Link(server)
    finally:
        server.disconnect()
        await server.wait()


class Client:
    def __init__(self, server: backends.GreetedFileServer) -> None:
        self._server = server
        self._packets = Packets()
        self._ids = 0
        self._found: list[bytes] = []

    async def ask(self, kind: PacketKind, *parts: bytes) -> PacketReader:
        self._ids += 1
        await self._server.send([wire.packet(kind, wire.number(self._ids), *parts)])
        while not self._found:
            data = await asyncio.wait_for(self._server.read(), 30)
            assert data is not None, "the server has ended"
            self._found += self._packets.feed(data)

        reader = PacketReader(self._found.pop(0))
        reader.byte()
        assert reader.take(4) == wire.number(self._ids)
        return reader

    async def round_trip(self, data: bytes) -> bytes:
        flags = wire.number(1 | 2 | 8)
        attributes = wire.attributes(Attributes())
        opened = await self.ask(PacketKind.OPEN, wire.text(b"/f"), flags, attributes)
        handle = wire.text(opened.text())
        written = await self.ask(PacketKind.WRITE, handle, (0).to_bytes(8), wire.text(data))
        assert written.number() == SftpStatus.OK
        return (
            await self.ask(PacketKind.READ, handle, (0).to_bytes(8), wire.number(len(data)))
        ).text()


async def test_files_are_read_and_written_through_the_link(tmp_path: Path) -> None:
    data = os.urandom(wire.MAX_DATA)
    async with link_to(tmp_path) as link:
        assert await Client(await greeted(link, HELLO)).round_trip(data) == data
    assert (tmp_path / "f").read_bytes() == data


async def test_the_reason_of_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    class Failed(Link):
        reads = 0

        async def read(self) -> tuple[Channel, bytes] | None:
            self.reads += 1
            return (Channel.STDERR, b"moorage: the agent is too old\n") if self.reads == 1 else None

    async with link_to(tmp_path) as link:
        with pytest.raises(Conflict, match="too old"):
            await greeted(Failed(link.server), HELLO)
