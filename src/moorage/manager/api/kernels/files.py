"""The files of running sessions: ``GET /v1/sessions/{ref}/files`` lists a directory, and ``GET``
and ``PUT /v1/sessions/{ref}/files/content`` copy a file. All run commands in the session, so they
can do what a command there can do, as its user. Content passes through in pieces: a slow reader
slows down the sender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from aiohttp import web
from pydantic import Field

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.copy_scripts import (
    DENIED,
    LIST_SCRIPT,
    MISSING,
    NO_PROGRAM,
    RECEIVE_SCRIPT,
    SEND_SCRIPT,
    ListedFile,
    is_disk_full,
    read_listing,
)
from moorage.common.http.server import read_while_arriving
from moorage.common.model.cluster import MAIN
from moorage.common.model.commands import Channel, CopySpec, ExecSpec
from moorage.common.model.errors import (
    AgentUnreachable,
    Conflict,
    InvalidInput,
    MalformedBody,
    MoorageError,
    NotFound,
)
from moorage.common.model.session_access import Action
from moorage.common.model.spec import Model, NoNul
from moorage.common.model.spec_fields import Path
from moorage.common.tar_head import TarHead, file_end, file_head
from moorage.common.views.resources import SessionView
from moorage.common.views.session_files import DirectoryView, FileView, StoredFile
from moorage.manager.api.http import authorization
from moorage.manager.api.http.dependencies import OpenCommand
from moorage.manager.api.http.problems import LengthRequired, RequestTimeout
from moorage.manager.api.http.request import STREAM
from moorage.manager.api.http.route import SESSION_PATH, Call, route

# Names in one answer. People look at fewer, and programs can list a directory themselves.
MOST_NAMES = 1000
_LISTING_BYTES = 2 * 1024 * 1024
_PIECE_BYTES = 128 * 1024
_STDERR_BYTES = 2000
_NO_LIMIT = 1 << 62
# Nothing in a browser may run what a session wrote.
_CONTENT_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class FilesQuery(Model):
    path: Annotated[
        Path,
        Field(
            min_length=1,
            description="Absolute, or relative to where its commands start.",
        ),
    ] = "."
    kernel: Annotated[
        NoNul, Field(description="Hostname of a kernel in a cluster session, such as sub1.")
    ] = MAIN


class FileQuery(FilesQuery):
    path: Annotated[
        Path,
        Field(
            min_length=1,
            description="Absolute, or relative to where its commands start.",
        ),
    ]


@route(
    "GET",
    f"{SESSION_PATH}/files",
    "List a directory of a running session",
    query=FilesQuery,
    returns=DirectoryView,
    action=Action.EXEC,
)
async def list_session_files(call: Call[None, FilesQuery]) -> DirectoryView:
    session = await authorization.session_of(call)
    query = call.query
    command = ["sh", "-c", LIST_SCRIPT, "sh", query.path, str(MOST_NAMES)]
    # Messages in English, and names in the order of their bytes.
    spec = ExecSpec(command=command, kernel=query.kernel, env={"LC_ALL": "C"})
    output = b""
    async with _running(call, session, spec) as run:
        while piece := await run.read():
            output += piece
            if len(output) > _LISTING_BYTES:
                raise Conflict(f"the names in {query.path!r} take more than {_LISTING_BYTES} bytes")

    try:
        found = read_listing(output)
    except ValueError as error:
        raise Conflict(f"session {session.name!r} did not list {query.path!r}: {error}") from None

    return DirectoryView(
        path=found.path.decode(errors="replace"),
        files=[_view(file) for file in found.files],
        complete=found.complete,
    )


def _view(file: ListedFile) -> FileView:
    at = file.changed_at
    try:
        changed_at = None if at is None else datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError):  # programs can set any time
        changed_at = None

    return FileView(
        name=file.name.decode(errors="replace"),
        kind=file.kind,
        link=file.link,
        size=file.size if file.kind == "file" else None,
        changed_at=changed_at,
    )


@route(
    "GET",
    f"{SESSION_PATH}/files/content",
    "Read a file of a running session, or a directory as a tar archive",
    query=FileQuery,
    returns="application/octet-stream",
    action=Action.EXEC,
    streams=True,
)
async def get_session_file(call: Call[None, FileQuery]) -> web.StreamResponse:
    """Stream a file. Errors before its first byte are problem responses; later errors abort the
    stream."""
    session = await authorization.session_of(call)
    query = call.query
    path = query.path.rstrip("/") or ("/" if query.path.startswith("/") else ".")
    spec = ExecSpec(
        command=["sh", "-c", SEND_SCRIPT, "sh", path],
        kernel=query.kernel,
        files=CopySpec(direction="out", path=path),
    )
    async with _running(call, session, spec) as run:
        head = await _head(run, session, path)
        response = web.StreamResponse(headers=_CONTENT_HEADERS | _named(path, head))
        # The last piece is sent once the session has confirmed the copy, so that a client never
        # takes an incomplete file for a complete one.
        left = head.size if head.is_file else _NO_LIMIT
        held = (head.content if head.is_file else head.fed)[:left]
        left -= len(held)
        await response.prepare(call.request)
        call.request[STREAM] = response
        while piece := await run.read():
            if piece := piece[:left]:
                await response.write(held)
                held = piece
                left -= len(piece)

        if head.is_file and left > 0:
            raise Conflict(f"the copy of {path!r} was cut off")

    await response.write(held)
    await response.write_eof()
    return response


async def _head(run: _Run, session: SessionView, path: str) -> TarHead:
    head = TarHead()
    try:
        while piece := await run.read():
            if head.feed(piece):
                break
    except ValueError as error:
        raise Conflict(f"session {session.name!r} did not send {path!r}: {error}") from None

    if head.entry is None:
        while await run.read():
            pass  # the padding of an empty stream; the end shows the cause
        raise Conflict(
            f"session {session.name!r} sent no file {path!r}",
            next_step="`moorage cp` shows what tar reports in the session",
        )

    if not head.is_file and not head.entry.isdir():
        raise Conflict(
            f"{path!r} is neither a file that can be read in order, nor a directory",
            next_step=f"copy it with `moorage cp {session.name}:{path} .`",
        )

    return head


def _named(path: str, head: TarHead) -> dict[str, str]:
    """The headers with which browsers store the file under its name."""
    name = path.rpartition("/")[2]
    if name in ("", ".", ".."):
        name = "files"

    headers = {"Content-Type": "application/octet-stream"}
    if head.is_file:
        headers["Content-Length"] = str(head.size)
    else:
        name = f"{name}.tar"

    encoded = quote(name, safe="", errors="replace")
    return headers | {"Content-Disposition": f"attachment; filename*=UTF-8''{encoded}"}


@route(
    "PUT",
    f"{SESSION_PATH}/files/content",
    "Store a file in a running session, completely or not at all",
    query=FileQuery,
    takes="application/octet-stream",
    returns=StoredFile,
    action=Action.EXEC,
    max_body_bytes=_NO_LIMIT,
)
async def put_session_file(call: Call[None, FileQuery]) -> StoredFile:
    """Store the body. It replaces a file of that name; its directory has to exist."""
    session = await authorization.session_of(call)
    query = call.query
    name = query.path.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise InvalidInput(
            f"path: {query.path!r} does not end in the name of a file",
            field="path",
            where="query",
            next_step="end the path with the name under which the file is to be stored",
        )

    size = call.request.content_length
    if size is None:
        raise LengthRequired(
            "the request has no Content-Length", next_step="send the size of the file"
        )

    script = ["sh", "-c", RECEIVE_SCRIPT, "sh", query.path, name, call.deps.clock.new_id()]
    spec = ExecSpec(
        command=script,
        stdin=True,
        kernel=query.kernel,
        files=CopySpec(direction="in", path=query.path, name=name),
    )
    async with _running(call, session, spec) as run:
        sending = spawn("api.files.send", _send(call, run.command, size))
        reading = spawn("api.files.read", run.read_all())
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and (refused := sending.result()) is not None:
                raise refused

            await reading  # a session that reads no further has already ended the command
        finally:
            await cancel_and_wait(sending, reading)

    return StoredFile(path=query.path, size=size)


async def _send(
    call: Call[None, FileQuery], command: OpenCommand, size: int
) -> MoorageError | None:
    """Send the body as a tar stream. Errors are returned, so that the task runner does not log
    them."""
    pause_s = call.deps.limits.body_s
    await command.send(file_head(size, call.deps.clock.now().timestamp()))
    try:
        async for piece in read_while_arriving(call.request.content, pause_s):
            for at in range(0, len(piece), _PIECE_BYTES):
                await command.send(piece[at : at + _PIECE_BYTES])
    except TimeoutError:
        return RequestTimeout(
            f"nothing of the file arrived for {pause_s:g} s", next_step="nothing was stored"
        )
    except (web.RequestPayloadError, ConnectionError) as error:  # also a client that cancels
        return MalformedBody(f"the body could not be read: {error}", next_step="nothing was stored")

    await command.send(file_end(size))
    await command.end_input()
    return None


class _Run:
    """A command in a session, of which only the end of its messages is kept."""

    def __init__(self, command: OpenCommand) -> None:
        self.command = command
        self.stderr = b""

    async def read(self) -> bytes:
        """The next output; empty at the end."""
        while (output := await self.command.read()) is not None:
            channel, data = output
            if channel is Channel.STDOUT and data:
                return data
            if channel is Channel.STDERR:
                self.stderr = (self.stderr + data)[-_STDERR_BYTES:]

        return b""

    async def read_all(self) -> None:
        while await self.read():
            pass


@asynccontextmanager
async def _running(
    call: Call[None, FilesQuery] | Call[None, FileQuery], session: SessionView, spec: ExecSpec
) -> AsyncIterator[_Run]:
    """Run a script. The context reads the rest of its output, and raises the cause if it failed,
    which replaces an error of the caller that follows from it."""
    await call.deps.execs.check(session)
    async with call.deps.execs.open(session, spec, actor=call.scope.actor) as command:
        run = _Run(command)
        try:
            yield run
        except Conflict as consequence:
            if command.end is not None and (cause := _failure(run, session)) is not None:
                raise cause from consequence
            raise

        await run.read_all()
        if (cause := _failure(run, session)) is not None:
            raise cause


def _failure(run: _Run, session: SessionView) -> MoorageError | None:
    """The error that the end of the script and its messages indicate, if any."""
    end = run.command.end
    if end is None:
        return AgentUnreachable(
            "the connection to the session's node was lost, and the copy was terminated",
            next_step="try again in a moment; `moorage agents` lists the connected agents",
        )

    text = " ".join(run.stderr.decode(errors="replace").split())
    where = f"in session {session.name!r}"
    if end.code == NotFound.code:
        return NotFound(f"{end.detail}, {where}", next_step=end.next_step)
    if end.exit_code is None or end.code:
        return Conflict(end.detail or "the connection was lost", next_step=end.next_step)
    if end.exit_code == MISSING:
        return NotFound(f"{text}, {where}")
    if end.exit_code == DENIED:
        return Conflict(f"{text}, {where}", next_step="the session's user may not read it")

    if end.exit_code in NO_PROGRAM:
        return Conflict(
            f"session {session.name!r} lacks a program that copies need: {text}",
            next_step="copies need sh and tar in the session; use an image that has both",
        )

    if end.exit_code != 0:
        return Conflict(
            f"session {session.name!r} failed to copy: {text or end.exit_code}",
            next_step="free some space: the session's disk is full" if is_disk_full(text) else "",
        )

    return None
