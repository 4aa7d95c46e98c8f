"""The server of a session's files, as agents start it: over a connection of its own, and through
the link."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.addresses import free_port

from moorage.agent.execution.file_server import FilePorts, FileServer, serve_files
from moorage.agent.runtimes.execution import STDERR
from moorage.agent.state.ports import PortAllocator
from moorage.common.aio.clock import SystemClock
from moorage.common.model.addresses import split_address
from moorage.common.model.commands import Channel, ExecEnd
from moorage.common.model.errors import Conflict
from moorage.common.sftp import wire
from moorage.common.sftp.direct import credential_file, tls_context
from moorage.common.sftp.framing import Packets
from moorage.common.sftp.wire import Attributes, Kind, Reader, Status
from moorage.manager.pki.file_credentials import create_credential
from moorage.proxy.ssh import backends
from moorage.proxy.ssh.backends import greeted

HELLO = wire.packet(Kind.INIT, wire.number(wire.VERSION))


class Link:
    """The way through the manager. ``told``: the address that the proxy gets."""

    def __init__(self, server: FileServer, told: tuple[str, str] | None) -> None:
        self.server = server
        self.direct = told
        self.end: ExecEnd | None = None
        self.sent = 0

    async def send(self, data: bytes) -> None:
        self.sent += 1
        await self.server.write(data)

    async def end_input(self) -> None:
        await self.server.end_input()

    async def resize(self, rows: int, cols: int) -> None: ...

    async def read(self) -> tuple[Channel, bytes] | None:
        if (output := await self.server.read()) is None:
            return None
        return (Channel.STDERR if output[0] == STDERR else Channel.STDOUT), output[1]


class Node:
    """A node with a session's files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counted = list[str]()
        port = free_port()
        self.ports = FilePorts(
            PortAllocator(f"{port}-{port}", "127.0.0.1", clock=SystemClock()), "127.0.0.1"
        )
        self.credential = create_credential(datetime.now(UTC))

    @asynccontextmanager
    async def link(self, *, listens: bool = True, told: int = 0) -> AsyncIterator[Link]:
        server = await serve_files(self.folder, self.credential if listens else "", self.ports)
        address = f"127.0.0.1:{told}" if told else server.address
        try:
            yield Link(server, (address, self.credential) if address else None)
        finally:
            server.disconnect()
            await server.wait()

    def greeted(self, link: Link, connects_s: float = 30.0) -> backends.Greeted:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Link]:
            yield link

        return greeted(opened(), HELLO, self.counted.append, connects_s)


class Client:
    def __init__(self, server: backends.FileServer) -> None:
        self._server = server
        self._packets = Packets()
        self._ids = 0
        self._found: list[bytes] = []

    async def ask(self, kind: Kind, *parts: bytes) -> Reader:
        self._ids += 1
        await self._server.send([wire.packet(kind, wire.number(self._ids), *parts)])
        while not self._found:
            data = await asyncio.wait_for(self._server.read(), 30)
            assert data is not None, "the server has ended"
            self._found += self._packets.feed(data)

        reader = Reader(self._found.pop(0))
        reader.byte()
        assert reader.take(4) == wire.number(self._ids)
        return reader

    async def round_trip(self, data: bytes) -> bytes:
        flags = wire.number(1 | 2 | 8)
        attributes = wire.attributes(Attributes())
        opened = await self.ask(Kind.OPEN, wire.text(b"/f"), flags, attributes)
        handle = wire.text(opened.text())
        written = await self.ask(Kind.WRITE, handle, (0).to_bytes(8), wire.text(data))
        assert written.number() == Status.OK
        return (await self.ask(Kind.READ, handle, (0).to_bytes(8), wire.number(len(data)))).text()


async def _received(reader: asyncio.StreamReader) -> bytes:
    """All until the connection ends."""
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_bytes_go_straight_to_the_node(node: Node) -> None:
    data = os.urandom(wire.MAX_DATA)
    async with node.link() as link, node.greeted(link) as server:
        assert await Client(server).round_trip(data) == data
        assert (node.counted, link.sent) == (["direct"], 1)
        # The credential opens one connection: nothing listens any more.
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*split_address(link.server.address))
    assert (node.folder / "f").read_bytes() == data


@pytest.mark.parametrize(
    "way", ["an agent that does not listen", "nothing listens there", "another program there"]
)
async def test_a_node_out_of_reach_is_used_through_the_link(node: Node, way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        told = {
            "nothing listens there": free_port(),
            "another program there": other.getsockname()[1],
        }
        async with (
            node.link(listens=way in told, told=told.get(way, 0)) as link,
            node.greeted(link, 0.5) as server,
        ):
            assert await Client(server).round_trip(b"x" * 1000) == b"x" * 1000

    assert node.counted == ["link"]


async def test_a_server_with_another_credential_is_not_used(node: Node) -> None:
    """It listens at the node's address, takes any client, and answers as a server of files does."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire.packet(Kind.VERSION, wire.number(wire.VERSION)))
        await _received(reader)
        writer.close()

    with credential_file(create_credential(datetime.now(UTC))) as fd:
        context = tls_context(fd, server=True)

    context.verify_mode = ssl.CERT_NONE
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as other:
        told = other.sockets[0].getsockname()[1]
        async with node.link(told=told) as link, node.greeted(link, 5) as server:
            assert node.counted == ["link"]
            assert await Client(server).round_trip(b"z") == b"z"


async def test_a_server_waits_while_its_bytes_are_not_read() -> None:
    class Transport(asyncio.Transport):
        reads = True

        def pause_reading(self) -> None:
            self.reads = False

        def resume_reading(self) -> None:
            self.reads = True

        def set_write_buffer_limits(
            self, high: int | None = None, low: int | None = None
        ) -> None: ...

    transport = Transport()
    server = backends.DirectServer()
    server.connection_made(transport)
    pieces = 0
    while transport.reads:
        assert pieces < 10, "it takes more than it may hold"
        server.buffer_updated(len(server.get_buffer(-1)))
        pieces += 1

    assert pieces == 2, "1 MiB in pieces of 512 KiB"
    for reading in (False, True):
        assert await server.read()
        assert transport.reads == reading


async def test_nobody_else_gets_in(node: Node) -> None:
    """Not without TLS, and not with another credential; the proxy gets in after them."""
    strange = create_credential(datetime.now(UTC))
    async with node.link() as link:
        await link.send(HELLO)
        while (await link.read()) is None:
            pass

        host, port = split_address(link.server.address)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(HELLO)
        answer = await _received(reader)
        assert len(answer) < 20  # an alert of TLS, or nothing
        writer.close()
        with credential_file(strange) as fd:
            context = tls_context(fd, server=False)

        with pytest.raises(ssl.SSLError):
            await asyncio.wait_for(
                asyncio.open_connection(host, port, ssl=context, server_hostname=""), 30
            )

        # A client that does not verify the server has no credential that the server accepts.
        context.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
        assert await _received(reader) == b""
        with credential_file(node.credential) as fd:
            right = tls_context(fd, server=False)

        reader, writer = await asyncio.open_connection(host, port, ssl=right, server_hostname="")
        assert len(await asyncio.wait_for(reader.readexactly(5), 30)) == 5
        writer.transport.abort()


async def test_the_connection_ends_with_its_link(node: Node) -> None:
    """As when the manager withdraws the right to the files, while their server goes on."""

    class Withdrawn(Link):
        withdrawn = asyncio.Event()

        async def read(self) -> tuple[Channel, bytes] | None:
            if not self.greeted:
                self.greeted = True
                return await super().read()
            await self.withdrawn.wait()
            return None

        greeted = False

    async with node.link() as opened:
        link = Withdrawn(opened.server, opened.direct)
        async with node.greeted(link) as server:
            assert await Client(server).round_trip(b"y") == b"y"
            link.withdrawn.set()
            assert await asyncio.wait_for(server.read(), 30) is None


async def test_the_reason_of_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    class Failed(Link):
        async def read(self) -> tuple[Channel, bytes] | None:
            self.sent += 1
            return (Channel.STDERR, b"moorage: the agent is too old\n") if self.sent == 2 else None

    node = Node(tmp_path)
    async with node.link(listens=False) as link:
        with pytest.raises(Conflict, match="too old"):
            async with node.greeted(Failed(link.server, None)):
                pass
