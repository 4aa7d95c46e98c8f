"""Virtual root of SFTP: ``/PROJECT/SESSION/…`` over the files of all sessions that a user may reach.

A packet that is about files goes to the server of that session's files, at its agent, with the path from
there on; its answer comes back unchanged. Handles begin with two bytes that say whose they are, so reads and
writes pass without being looked into. Only the two upper levels are made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.commands import Channel
from moorage.common.model.errors import MoorageError
from moorage.common.sftp import wire
from moorage.common.sftp.wire import Attributes, Kind, Malformed, Packets, Reader, Status
from moorage.common.ssh.channels import RunningCommand

MAX_SESSIONS = 64
_DIRECTORY = Attributes(mode=0o040555)
_OWN = b"\xff\xff"
_PREFIX_BYTES = 2
_EXTENSIONS = (
    *(b"posix-rename@openssh.com", b"1", b"hardlink@openssh.com", b"1", b"fsync@openssh.com", b"1"),
    *(b"statvfs@openssh.com", b"2", b"limits@openssh.com", b"1"),
)
_TWO_PATHS = (b"posix-rename@openssh.com", b"hardlink@openssh.com")
_BY_HANDLE = frozenset({Kind.CLOSE, Kind.READ, Kind.WRITE, Kind.FSTAT, Kind.FSETSTAT, Kind.READDIR})
_CHANGES = frozenset({Kind.SETSTAT, Kind.REMOVE, Kind.MKDIR, Kind.RMDIR, Kind.RENAME, Kind.SYMLINK})
_LOST = "the connection to the session's files was lost"
_MOVED = "files cannot be moved or linked from one session to another: copy them"


class Tree(Protocol):
    """What the user may reach."""

    async def list(self, project: str) -> list[str]:
        """Projects, or the sessions of one. Raises ``MoorageError``."""
        ...

    def open(self, session: str) -> AbstractAsyncContextManager[RunningCommand]:
        """The server of the files of ``PROJECT/SESSION``. Raises ``MoorageError``."""
        ...


class Backend:
    """The server of one session's files. ``prefix``: of its handles."""

    def __init__(self, command: RunningCommand, prefix: bytes) -> None:
        self.command, self.prefix, self.gone = command, prefix, False
        self.waiting: set[bytes] = set()  # requests without an answer


class SftpRouter:
    """Serves one client. ``write`` queues bytes for it, and ``room`` is set while it takes more."""

    def __init__(self, tree: Tree, write: Callable[[bytes], None], room: asyncio.Event) -> None:
        self._tree, self._send, self._room = tree, write, room
        self._packets, self._stack = Packets(), AsyncExitStack()
        self._backends: dict[str, Backend] = {}
        self._by_prefix: dict[bytes, Backend] = {}
        self._listings: dict[bytes, list[str]] = {}
        self._made = 0
        self._readers: list[asyncio.Task[None]] = []

    async def feed(self, data: bytes) -> None:
        """Bytes of the client. Raises ``Malformed``."""
        for packet in self._packets.feed(data):
            await self._route(packet)

    async def close(self) -> None:
        await cancel_and_wait(*self._readers)
        await self._stack.aclose()

    async def _route(self, packet: bytes) -> None:
        kind = packet[0]
        if kind == Kind.INIT:
            pairs = [wire.text(one) for one in _EXTENSIONS]
            self._send(wire.packet(Kind.VERSION, wire.number(wire.VERSION), *pairs))
            return
        reader = Reader(packet)
        reader.byte()
        request = reader.take(4)
        try:
            if kind in _BY_HANDLE:
                await self._by_handle(packet, kind, request, reader)
            elif kind == Kind.EXTENDED:
                await self._extended(packet, request, reader)
            else:
                await self._by_path(kind, request, reader)
        except Malformed as error:
            self._send(wire.status(request, Status.BAD_MESSAGE, str(error)))
        except _Answer as answer:
            self._send(wire.status(request, answer.code, answer.message))

    async def _by_handle(self, packet: bytes, kind: int, request: bytes, r: Reader) -> None:
        handle = r.text()
        prefix = handle[:_PREFIX_BYTES]
        if prefix != _OWN:
            backend = self._by_prefix.get(prefix)
            if backend is None:
                raise Malformed("nothing open has this handle")
            await self._forward(backend, packet)
        elif kind == Kind.CLOSE:
            self._listings.pop(handle, None)
            self._send(wire.status(request, Status.OK))
        elif kind == Kind.READDIR and handle in self._listings:
            found, self._listings[handle] = self._listings[handle], []
            entries = [_entry(name) for name in found]
            self._send(wire.names(request, entries) if found else wire.status(request, Status.EOF))
        elif kind == Kind.FSTAT:
            self._send(wire.packet(Kind.ATTRS, request, wire.attributes(_DIRECTORY)))
        else:
            raise Malformed("nothing open has this handle")

    async def _by_path(self, kind: int, request: bytes, r: Reader) -> None:
        first = r.path()
        if kind == Kind.REALPATH:
            path = wire.normalized(first)
            self._send(wire.names(request, [(path, path, Attributes())]))
            return
        if kind == Kind.SYMLINK:
            session, path = _split(r.path())
            await self._to(session, kind, request, wire.text(first), wire.text(path))
            return
        session, path = _split(first)
        if kind == Kind.RENAME:
            other, new = _split(r.path())
            if other != session:
                raise _Answer(Status.FAILURE, _MOVED)
            await self._to(session, kind, request, wire.text(path), wire.text(new))
        elif session.count("/") == 1:
            await self._to(session, kind, request, wire.text(path), r.rest())
        else:
            await self._virtual(session, kind, request)

    async def _extended(self, packet: bytes, request: bytes, r: Reader) -> None:
        name = r.text()
        if name == b"limits@openssh.com":
            limits = (wire.MAX_PACKET, wire.MAX_DATA, wire.MAX_DATA, 0)
            self._send(wire.packet(Kind.EXTENDED_REPLY, request, *(one.to_bytes(8) for one in limits)))
        elif name == b"fsync@openssh.com":
            await self._by_handle(packet, Kind.EXTENDED, request, r)
        elif name in _TWO_PATHS:
            session, path = _split(r.path())
            other, new = _split(r.path())
            if other != session:
                raise _Answer(Status.FAILURE, _MOVED)
            await self._to(session, Kind.EXTENDED, request, wire.text(name), wire.text(path), wire.text(new))
        elif name == b"statvfs@openssh.com":
            session, path = _split(r.path())
            await self._to(session, Kind.EXTENDED, request, wire.text(name), wire.text(path))
        else:
            raise _Answer(Status.OP_UNSUPPORTED, "this extension is not supported")

    async def _virtual(self, folder: str, kind: int, request: bytes) -> None:
        """A request about the root or a project."""
        if kind in _CHANGES or kind in (Kind.OPEN, Kind.READLINK):
            raise _Answer(Status.PERMISSION_DENIED, "projects and sessions are not changed by SFTP")
        if kind not in (Kind.STAT, Kind.LSTAT, Kind.OPENDIR):
            raise _Answer(Status.OP_UNSUPPORTED, "this request is not supported")
        if folder and folder not in await self._list(""):
            raise _Answer(Status.NO_SUCH_FILE, "there is no such project, or you are no member of it")
        if kind != Kind.OPENDIR:
            self._send(wire.packet(Kind.ATTRS, request, wire.attributes(_DIRECTORY)))
            return
        if len(self._listings) >= MAX_SESSIONS:
            raise _Answer(Status.FAILURE, "too many open directories")
        self._made += 1
        handle = _OWN + wire.number(self._made)
        self._listings[handle] = [".", "..", *await self._list(folder)]
        self._send(wire.packet(Kind.HANDLE, request, wire.text(handle)))

    async def _list(self, project: str) -> list[str]:
        try:
            return await self._tree.list(project)
        except MoorageError as error:
            raise _Answer(Status.FAILURE, error.message) from None

    async def _to(self, session: str, kind: int, request: bytes, *parts: bytes) -> None:
        """Send a request to the server of a session's files."""
        if session.count("/") != 1:
            raise _Answer(Status.PERMISSION_DENIED, "projects and sessions are not changed by SFTP")
        backend = await self._backend(session)
        await self._forward(backend, wire.packet(Kind(kind), request, *parts)[4:])

    async def _forward(self, backend: Backend, packet: bytes) -> None:
        if backend.gone:
            raise _Answer(Status.FAILURE, _LOST)
        backend.waiting.add(packet[1:5])
        await backend.command.send(len(packet).to_bytes(4) + packet)

    async def _backend(self, session: str) -> Backend:
        backend = self._backends.get(session)
        if backend is not None and not backend.gone:
            return backend
        if len(self._readers) >= MAX_SESSIONS:
            raise _Answer(Status.FAILURE, f"one connection reaches at most {MAX_SESSIONS} sessions")
        try:
            command = await self._stack.enter_async_context(self._tree.open(session))
        except MoorageError as error:
            code = Status.NO_SUCH_FILE if error.code == "not-found" else Status.PERMISSION_DENIED
            raise _Answer(code, error.message) from None
        prefix = len(self._readers).to_bytes(_PREFIX_BYTES)
        backend = self._backends[session] = self._by_prefix[prefix] = Backend(command, prefix)
        hello = wire.packet(
            Kind.INIT, wire.number(wire.VERSION), wire.text(wire.HANDLE_PREFIX), wire.text(prefix)
        )
        await command.send(hello)
        self._readers.append(spawn("ssh.sftp.backend", self._relay(backend)))
        return backend

    async def _relay(self, backend: Backend) -> None:
        """Pass the answers of a server on to the client."""
        packets, waiting = Packets(), backend.waiting
        try:
            while (output := await backend.command.read()) is not None:
                channel, data = output
                if channel is not Channel.STDOUT:
                    continue
                whole = [one for one in packets.feed(data) if one[0] != Kind.VERSION]
                waiting.difference_update(one[1:5] for one in whole)
                await self._room.wait()
                if whole:
                    self._send(b"".join(len(one).to_bytes(4) + one for one in whole))
        except (MoorageError, Malformed):
            pass
        finally:
            backend.gone = True
            for request in waiting:
                self._send(wire.status(request, Status.FAILURE, _LOST))
            waiting.clear()


class _Answer(Exception):
    """The status that answers a request."""

    def __init__(self, code: Status, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def _split(path: bytes) -> tuple[str, bytes]:
    """``PROJECT/SESSION`` of a path, and the path in its files. Raises ``_Answer`` for no name."""
    parts = wire.normalized(path).split(b"/", 3)[1:]
    try:
        names = [part.decode("ascii") for part in parts[:2] if part]
    except UnicodeDecodeError:
        raise _Answer(Status.NO_SUCH_FILE, "there is no project or session of this name") from None
    return "/".join(names), b"/" + (parts[2] if len(parts) == 3 else b"")


def _entry(name: str) -> tuple[bytes, bytes, Attributes]:
    raw = name.encode()
    return raw, b"dr-xr-xr-x    1 moorage  moorage         0 " + raw, _DIRECTORY
