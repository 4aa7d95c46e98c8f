"""Servers of the files of sessions, as the proxy reaches them: over a connection of their own, or
through the link and a manager where the node cannot be reached."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, cast

import structlog

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.addresses import split_address
from moorage.common.model.commands import Channel
from moorage.common.model.errors import Conflict, MoorageError
from moorage.common.model.printable import printable
from moorage.common.sftp.framing import Packets, Piece, whole
from moorage.common.ssh.channels import RunningCommand

log = structlog.get_logger("moorage.proxy.ssh")

_STARTS_S = 15.0
CONNECTS_S = 3.0
_BUFFER = 512 * 1024
_UNREAD = 1024 * 1024  # bytes at which a server has to wait
_MAX_ERROR = 2000


class FileServer(Protocol):
    """A server of files that has been greeted."""

    async def send(self, pieces: Sequence[Piece]) -> None: ...
    async def read(self) -> bytes | None:
        """None at the end. Raises ``MoorageError``."""
        ...


class Link(RunningCommand, Protocol):
    """``direct``: address and credential of the server, if it listens. Set before there is any
    output."""

    direct: tuple[str, str] | None


Greeted = AbstractAsyncContextManager[FileServer]


@asynccontextmanager
async def greeted(
    opened: AbstractAsyncContextManager[Link],
    hello: bytes,
    count: Callable[[str], None],
    connects_s: float = CONNECTS_S,
) -> AsyncIterator[FileServer]:
    """Greet the server, and connect to it if that is possible within ``connects_s``. The connection
    ends with the link. Raises ``MoorageError``."""
    async with opened as link:
        try:
            async with asyncio.timeout(_STARTS_S):
                await link.send(hello)
                await _first_answer(link)
        except TimeoutError:
            raise Conflict("the server of the session's files did not start in time") from None

        direct = await _connect(*link.direct, connects_s) if link.direct is not None else None
        count("direct" if direct is not None else "link")
        if direct is None:
            yield _Linked(link)
            return

        watcher = spawn("ssh.sftp.link", _until_ended(link, direct))
        try:
            yield direct
        finally:
            direct.close()
            await cancel_and_wait(watcher)


async def _first_answer(link: Link) -> None:
    """Wait for it. Raises ``Conflict`` with what the node says instead."""
    packets = Packets()
    errors = b""
    while (output := await link.read()) is not None:
        channel, data = output
        if channel is Channel.STDERR:
            errors = (errors + data)[:_MAX_ERROR]
        elif packets.feed(data):
            return

    said = printable(errors.decode(errors="replace").strip(), one_line=True)
    end = link.end.detail if link.end is not None else ""
    raise Conflict(said or end or "the session's files cannot be opened")


async def _until_ended(link: Link, direct: DirectServer) -> None:
    try:
        while await link.read() is not None:
            pass
    except MoorageError:
        pass
    finally:
        direct.close()


class _Linked:
    """A server behind the link."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def send(self, pieces: Sequence[Piece]) -> None:
        await self._link.send(whole(pieces))

    async def read(self) -> bytes | None:
        while (output := await self._link.read()) is not None:
            channel, data = output
            if channel is Channel.STDOUT:
                return data
        return None


async def _connect(address: str, credential: str, within_s: float) -> DirectServer | None:
    """None if the node cannot be reached."""
    connection: DirectServer | None = None
    try:
        async with asyncio.timeout(within_s):
            context = await asyncio.to_thread(_context, credential)
            host, port = split_address(address)
            _, connection = await asyncio.get_running_loop().create_connection(
                DirectServer, host, port, ssl=context, server_hostname=""
            )

            # A server that does not accept the credential says so only after the client's
            # handshake.
            greeting = Packets()
            while (data := await connection.read()) is not None:
                if greeting.feed(data):
                    return connection

        why = "the server closed the connection"
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error) or type(error).__name__

    if connection is not None:
        connection.close()

    log.info(
        "the files of a session go through the manager: their node was not reached",
        address=address,
        why=why,
    )
    return None


def _context(credential: str) -> ssl.SSLContext:
    from moorage.common.sftp.direct import credential_file, tls_context

    with credential_file(credential) as fd:
        return tls_context(fd, server=False)


class DirectServer(asyncio.BufferedProtocol):
    """A connection to a server of files."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_BUFFER))
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._ended = False
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNREAD)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._unread.append(bytes(self._buffer[:nbytes]))
        self._size += nbytes
        self._arrived.set()
        if self._size >= _UNREAD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._arrived.set()
        self._writable.set()

    async def send(self, pieces: Sequence[Piece]) -> None:
        await self._writable.wait()
        if self._transport is not None and not self._ended:
            self._transport.writelines(pieces)

    async def read(self) -> bytes | None:
        while not self._unread:
            if self._ended:
                return None

            self._arrived.clear()
            await self._arrived.wait()

        data = self._unread.popleft()
        self._size -= len(data)
        if self._paused and self._size < _UNREAD // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

        return data

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
