"""Handler for session logs: stored output, and new output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated

from aiohttp import web
from pydantic import Field

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link.log_request import LogPiece
from moorage.common.model.cluster import MAIN
from moorage.common.model.errors import MoorageError
from moorage.common.model.session_access import Action
from moorage.common.model.spec import Model, NoNul
from moorage.common.model.timestamps import Timestamp
from moorage.manager.api.http import authorization
from moorage.manager.api.http.request import STREAM
from moorage.manager.api.http.route import SESSION_PATH, Call, route

# The status is sent after this many seconds even if the log is empty, so that a following client
# knows that it is connected.
FIRST_CHUNK_S = 1.0
_LOG_HEADERS = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}

# In a response: the number of the first byte, counted from the start of the kernel's output. In a
# request: the first byte to return.
OFFSET = "X-Moorage-Log-Offset"
# In a response: the attempt whose log this is. Bytes are counted separately for each attempt.
ATTEMPT = "X-Moorage-Log-Attempt"


class LogQuery(Model):
    tail: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Number of lines from the end; 0 means the whole stored log."
    )
    follow: bool = Field(False, description="Continue to stream new output until the session ends.")
    attempt: Annotated[
        int | None, Field(ge=1, description="Attempt to read. Default: the newest.")
    ] = None
    kernel: Annotated[
        NoNul, Field(description="Hostname of a kernel in a cluster session, such as sub1.")
    ] = MAIN
    timestamps: bool = Field(False, description="Prefix each line with its time: RFC 3339, in UTC.")
    since: Annotated[
        Timestamp | None,
        Field(description="Only output written since this time, for runtimes that record times."),
    ] = None
    offset: Annotated[
        int | None,
        Field(
            ge=0,
            lt=1 << 63,
            description=(
                "Start at this byte of the log, or at the first later byte that is kept. The "
                "header `X-Moorage-Log-Offset` of the response contains the number of that byte, "
                "and `X-Moorage-Log-Attempt` the attempt whose bytes are counted. The response "
                "stops where bytes are missing, even if it does not follow the log. With "
                "`timestamps`, a line begins at this byte. A request may send the offset in the "
                "same header instead; older managers ignore it."
            ),
        ),
    ] = None


@route(
    "GET",
    f"{SESSION_PATH}/logs",
    "Read the log of a session's kernel",
    query=LogQuery,
    returns="text/plain",
    action=Action.LOGS,
    streams=True,
)
async def get_session_logs(call: Call[None, LogQuery]) -> web.StreamResponse:
    """Stream the log. Errors before the first chunk are problem responses; later errors abort the
    stream."""
    session = await authorization.session_of(call)
    query = call.query
    if session.adopted_from is not None:
        session = await call.deps.store.sessions.get(call.scope, session.adopted_from)
        shared = f"session {session.name!r}, whose run this one shares,"
        authorization.check_session(call, session, shared)
        query = query.model_copy(update={"attempt": None})

    chunks = call.deps.logs.read(
        call.scope,
        session,
        tail_lines=query.tail,
        follow=query.follow,
        attempt=query.attempt,
        hostname=query.kernel,
        timestamps=query.timestamps,
        since_ms=0 if query.since is None else max(1, round(query.since.timestamp() * 1000)),
        offset=_offset_of(call),
    )
    begin = _Begin()
    beginning: asyncio.Task[LogPiece | MoorageError | None] | None = None
    try:
        # An error before the agent's answer becomes a problem response rather than an aborted
        # stream, no matter how late it occurs.
        chunk = await begin.next(chunks)
        if isinstance(chunk, LogPiece) and not chunk.data:
            # In a separate task, so that the timeout does not cancel the read.
            beginning = spawn("api.logs", begin.data(chunks))
            await asyncio.wait({beginning}, timeout=FIRST_CHUNK_S)
            if beginning.done():
                chunk = beginning.result()

        if isinstance(chunk, MoorageError):
            raise chunk

        response = web.StreamResponse(headers=_LOG_HEADERS | begin.headers())
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        call.request[STREAM] = response
        if beginning is not None:
            chunk = await beginning

        while chunk is not None:
            if isinstance(chunk, MoorageError):
                raise chunk
            if chunk.data:
                await response.write(chunk.data)

            chunk = await begin.next(chunks)

        await response.write_eof()
        return response
    finally:
        await cancel_and_wait(beginning)
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def _offset_of(call: Call[None, LogQuery]) -> int | None:
    given = call.request.headers.get(OFFSET, "")
    if call.query.offset is None and given.isdecimal() and len(given) < 19:
        return int(given)
    return call.query.offset


class _Begin:
    """Reads a log in pieces, and records the byte and the attempt at which the log starts."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self._attempt = 0

    def headers(self) -> dict[str, str]:
        found = {} if self._offset is None else {OFFSET: str(self._offset)}
        return found | ({ATTEMPT: str(self._attempt)} if self._attempt else {})

    async def next(self, chunks: AsyncIterator[LogPiece]) -> LogPiece | MoorageError | None:
        """Return the next piece, or None at the end, or the error."""
        try:
            piece = await anext(chunks)
        except StopAsyncIteration:
            return None
        except MoorageError as error:
            return error

        if self._offset is None:
            self._offset = piece.offset

        self._attempt = piece.attempt
        return piece

    async def data(self, chunks: AsyncIterator[LogPiece]) -> LogPiece | MoorageError | None:
        """Return the next non-empty piece, or None at the end, or the error."""
        while isinstance(piece := await self.next(chunks), LogPiece) and not piece.data:
            pass
        return piece
