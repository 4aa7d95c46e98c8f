"""Virtual root of SFTP: ``/PROJECT/SESSION/…`` over the files of all sessions that a user may
reach.

A packet about files goes to the file server of that session, on its agent, with the rest of the
path; the answer comes back unchanged. Handles start with two bytes that identify the server, so
reads and writes pass uninspected, in the pieces in which they arrived. Only the two upper levels
are created here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.errors import MoorageError
from moorage.common.sftp import wire
from moorage.common.sftp.framing import HEAD, Piece, Pieces, whole
from moorage.common.sftp.wire import Attributes, Malformed, PacketKind, PacketReader, SftpStatus
from moorage.proxy.ssh.backends import Greeted, GreetedFileServer

MAX_SESSIONS = 64
_DIRECTORY = Attributes(mode=0o040555)
_OWN = b"\xff\xff"
_PREFIX_BYTES = 2
_EXTENSIONS = (
    *(b"posix-rename@openssh.com", b"1", b"hardlink@openssh.com", b"1", b"fsync@openssh.com", b"1"),
    *(b"statvfs@openssh.com", b"2", b"limits@openssh.com", b"1"),
)
_TWO_PATHS = (b"posix-rename@openssh.com", b"hardlink@openssh.com")
_BY_HANDLE = frozenset(
    {
        PacketKind.CLOSE,
        PacketKind.READ,
        PacketKind.WRITE,
        PacketKind.FSTAT,
        PacketKind.FSETSTAT,
        PacketKind.READDIR,
    }
)
_BY_PATH = frozenset(
    {
        *(
            PacketKind.OPEN,
            PacketKind.LSTAT,
            PacketKind.SETSTAT,
            PacketKind.OPENDIR,
            PacketKind.REMOVE,
            PacketKind.MKDIR,
            PacketKind.RMDIR,
        ),
        *(
            PacketKind.REALPATH,
            PacketKind.STAT,
            PacketKind.RENAME,
            PacketKind.READLINK,
            PacketKind.SYMLINK,
        ),
    }
)
_CHANGES = frozenset(
    {
        PacketKind.SETSTAT,
        PacketKind.REMOVE,
        PacketKind.MKDIR,
        PacketKind.RMDIR,
        PacketKind.RENAME,
        PacketKind.SYMLINK,
    }
)
_LOST = "the connection to the session's files was lost"
_MOVED = "files cannot be moved or linked from one session to another: copy them"


class Tree(Protocol):
    """The projects and sessions that the user may reach."""

    async def list(self, project: str) -> list[str]:
        """List projects, or the sessions of one project. Raises ``MoorageError``."""
        ...

    def open(self, session: str, hello: bytes) -> Greeted:
        """Open the file server of ``PROJECT/SESSION``, greeted with ``hello``. Raises
        ``MoorageError``."""
        ...


class Backend:
    """The file server of one session. ``prefix``: the prefix of its handles."""

    def __init__(self, server: GreetedFileServer) -> None:
        self.server = server
        self.gone = False
        self.waiting: set[bytes] = set()  # requests without an answer so far

    def lose(self) -> None:
        """Handle the end of the server's answers."""
        self.gone = True


class SftpRouter:
    """The SFTP server for one client. ``write`` queues bytes for the client, and ``room`` is set
    while it accepts more."""

    def __init__(self, tree: Tree, write: Callable[[bytes], None], room: asyncio.Event) -> None:
        self._tree = tree
        self._send = write
        self._room = room
        self._packets = Pieces()
        self._stack = AsyncExitStack()
        self._backends: dict[str, Backend] = {}
        self._by_prefix: dict[bytes, Backend] = {}
        self._listings: dict[bytes, list[str]] = {}
        self._handles_made = 0
        self._readers: list[asyncio.Task[None]] = []

    async def feed(self, data: bytes) -> None:
        """Process bytes from the client. Raises ``Malformed``."""
        for pieces in self._packets.feed(data):
            backend = self._owner(pieces[0])
            if backend is not None:
                await self._pass(backend, pieces)
            else:
                await self._route(whole(pieces)[4:])

    async def close(self) -> None:
        await cancel_and_wait(*self._readers)
        await self._stack.aclose()

    def _owner(self, head: Piece) -> Backend | None:
        """The server to which a read or write belongs."""
        if head[4] not in (PacketKind.READ, PacketKind.WRITE) or len(head) < HEAD:
            return None
        backend = self._by_prefix.get(bytes(head[13:HEAD]))
        has_prefix = int.from_bytes(head[9:13]) >= _PREFIX_BYTES
        return backend if has_prefix and backend is not None and not backend.gone else None

    async def _route(self, packet: bytes) -> None:
        kind = packet[0]
        if kind == PacketKind.INIT:
            pairs = [wire.text(extension) for extension in _EXTENSIONS]
            self._send(wire.packet(PacketKind.VERSION, wire.number(wire.VERSION), *pairs))
            return

        reader = PacketReader(packet)
        reader.byte()
        request = reader.take(4)
        try:
            if kind in _BY_HANDLE:
                await self._by_handle(packet, kind, request, reader)
            elif kind == PacketKind.EXTENDED:
                await self._extended(packet, request, reader)
            else:
                await self._by_path(kind, request, reader)
        except Malformed as error:
            self._send(wire.status(request, SftpStatus.BAD_MESSAGE, str(error)))
        except _Answer as answer:
            self._send(wire.status(request, answer.code, answer.message))

    async def _by_handle(self, packet: bytes, kind: int, request: bytes, r: PacketReader) -> None:
        handle = r.text()
        prefix = handle[:_PREFIX_BYTES]
        if prefix != _OWN:
            backend = self._by_prefix.get(prefix)
            if backend is None:
                raise Malformed("no open file has this handle")

            await self._forward(backend, packet)
        elif kind == PacketKind.CLOSE:
            self._listings.pop(handle, None)
            self._send(wire.status(request, SftpStatus.OK))
        elif kind == PacketKind.READDIR and handle in self._listings:
            found = self._listings[handle]
            self._listings[handle] = []
            entries = [_entry(name) for name in found]
            self._send(
                wire.names(request, entries) if found else wire.status(request, SftpStatus.EOF)
            )
        elif kind == PacketKind.FSTAT:
            self._send(wire.packet(PacketKind.ATTRS, request, wire.attributes(_DIRECTORY)))
        else:
            raise Malformed("no open file has this handle")

    async def _by_path(self, kind: int, request: bytes, r: PacketReader) -> None:
        if kind not in _BY_PATH:
            raise _Answer(SftpStatus.OP_UNSUPPORTED, f"requests of type {kind} are not supported")

        first = r.path()
        if kind == PacketKind.REALPATH:
            path = wire.normalized(first)
            self._send(wire.names(request, [(path, path, Attributes())]))
            return

        if kind == PacketKind.SYMLINK:
            session, path = _split(r.path())
            await self._forward_to(session, kind, request, wire.text(first), wire.text(path))
            return

        session, path = _split(first)
        if kind == PacketKind.RENAME:
            other, new = _split(r.path())
            if other != session:
                raise _Answer(SftpStatus.FAILURE, _MOVED)

            await self._forward_to(session, kind, request, wire.text(path), wire.text(new))
        elif session.count("/") == 1:
            await self._forward_to(session, kind, request, wire.text(path), r.rest())
        else:
            await self._virtual(session, kind, request)

    async def _extended(self, packet: bytes, request: bytes, r: PacketReader) -> None:
        name = r.text()
        if name == b"limits@openssh.com":
            limits = (wire.MAX_PACKET, wire.MAX_DATA, wire.MAX_DATA, 0)
            self._send(
                wire.packet(
                    PacketKind.EXTENDED_REPLY, request, *(limit.to_bytes(8) for limit in limits)
                )
            )
        elif name == b"fsync@openssh.com":
            await self._by_handle(packet, PacketKind.EXTENDED, request, r)
        elif name in _TWO_PATHS:
            session, path = _split(r.path())
            other, new = _split(r.path())
            if other != session:
                raise _Answer(SftpStatus.FAILURE, _MOVED)

            await self._forward_to(
                session,
                PacketKind.EXTENDED,
                request,
                wire.text(name),
                wire.text(path),
                wire.text(new),
            )
        elif name == b"statvfs@openssh.com":
            session, path = _split(r.path())
            await self._forward_to(
                session, PacketKind.EXTENDED, request, wire.text(name), wire.text(path)
            )
        else:
            raise _Answer(SftpStatus.OP_UNSUPPORTED, "this extension is not supported")

    async def _virtual(self, folder: str, kind: int, request: bytes) -> None:
        """Answer a request about the root or a project."""
        if kind in _CHANGES or kind in (PacketKind.OPEN, PacketKind.READLINK):
            raise _Answer(
                SftpStatus.PERMISSION_DENIED, "projects and sessions cannot be changed by SFTP"
            )
        if kind not in (PacketKind.STAT, PacketKind.LSTAT, PacketKind.OPENDIR):
            raise _Answer(SftpStatus.OP_UNSUPPORTED, "this request is not supported")

        if folder and folder not in await self._list(""):
            raise _Answer(
                SftpStatus.NO_SUCH_FILE, "there is no such project, or you are not a member of it"
            )

        if kind != PacketKind.OPENDIR:
            self._send(wire.packet(PacketKind.ATTRS, request, wire.attributes(_DIRECTORY)))
            return
        if len(self._listings) >= MAX_SESSIONS:
            raise _Answer(SftpStatus.FAILURE, "too many open directories")

        self._handles_made += 1
        handle = _OWN + wire.number(self._handles_made)
        self._listings[handle] = [".", "..", *await self._list(folder)]
        self._send(wire.packet(PacketKind.HANDLE, request, wire.text(handle)))

    async def _list(self, project: str) -> list[str]:
        try:
            return await self._tree.list(project)
        except MoorageError as error:
            raise _Answer(SftpStatus.FAILURE, error.message) from None

    async def _forward_to(self, session: str, kind: int, request: bytes, *parts: bytes) -> None:
        """Send a request to a session's file server."""
        if session.count("/") != 1:
            raise _Answer(
                SftpStatus.PERMISSION_DENIED, "projects and sessions cannot be changed by SFTP"
            )
        backend = await self._backend(session)
        await self._forward(backend, wire.packet(PacketKind(kind), request, *parts)[4:])

    async def _forward(self, backend: Backend, packet: bytes) -> None:
        if backend.gone:
            raise _Answer(SftpStatus.FAILURE, _LOST)
        await self._pass(backend, [len(packet).to_bytes(4) + packet])

    async def _pass(self, backend: Backend, pieces: list[Piece]) -> None:
        backend.waiting.add(bytes(pieces[0][5:9]))
        await backend.server.send(pieces)

    async def _backend(self, session: str) -> Backend:
        backend = self._backends.get(session)
        if backend is not None and not backend.gone:
            return backend
        if len(self._readers) >= MAX_SESSIONS:
            raise _Answer(
                SftpStatus.FAILURE, f"one connection can reach at most {MAX_SESSIONS} sessions"
            )

        prefix = len(self._readers).to_bytes(_PREFIX_BYTES)
        hello = wire.packet(
            PacketKind.INIT,
            wire.number(wire.VERSION),
            wire.text(wire.HANDLE_PREFIX),
            wire.text(prefix),
        )
        try:
            server = await self._stack.enter_async_context(self._tree.open(session, hello))
        except MoorageError as error:
            code = (
                SftpStatus.NO_SUCH_FILE
                if error.code == "not-found"
                else SftpStatus.PERMISSION_DENIED
            )
            raise _Answer(code, error.message) from None

        backend = self._backends[session] = self._by_prefix[prefix] = Backend(server)
        self._readers.append(spawn("ssh.sftp.backend", self._relay(backend)))
        return backend

    async def _relay(self, backend: Backend) -> None:
        """Forward a server's answers to the client."""
        packets = Pieces()
        waiting = backend.waiting
        try:
            while (data := await backend.server.read()) is not None:
                if not (answers := packets.feed(data)):
                    continue

                waiting.difference_update(bytes(answer[0][5:9]) for answer in answers)
                await self._room.wait()
                self._send(whole([piece for answer in answers for piece in answer]))
        except (MoorageError, Malformed):
            pass
        finally:
            backend.lose()
            for request in waiting:
                self._send(wire.status(request, SftpStatus.FAILURE, _LOST))

            waiting.clear()


class _Answer(Exception):
    """The status with which a request is answered."""

    def __init__(self, code: SftpStatus, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _split(path: bytes) -> tuple[str, bytes]:
    """``PROJECT/SESSION`` from a path, and the path within the session's files. Raises ``_Answer``
    if these are not names."""
    parts = wire.normalized(path).split(b"/", 3)[1:]
    try:
        names = [part.decode("ascii") for part in parts[:2] if part]
    except UnicodeDecodeError:
        raise _Answer(
            SftpStatus.NO_SUCH_FILE, "there is no project or session of this name"
        ) from None
    return "/".join(names), b"/" + (parts[2] if len(parts) == 3 else b"")


def _entry(name: str) -> tuple[bytes, bytes, Attributes]:
    raw = name.encode()
    return raw, b"dr-xr-xr-x    1 moorage  moorage         0 " + raw, _DIRECTORY
