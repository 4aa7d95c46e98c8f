"""Listener for aiohttp servers that bounds what a client can cost: time for a head, time for a
body, and framing around a body.

aiohttp itself waits an hour for the rest of a head and indefinitely for the rest of a body, and
reads chunk extensions of any length.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import StreamReader, http_exceptions, web
from aiohttp.http_parser import RawRequestMessage

from moorage.common.aio.sockets import keep_alive, limit_unread
from moorage.common.http.head import HeadGuard, HeadRefusal

# Maximum size of a request's chunk extensions and trailers, which come on top of its body and the
# framing of small chunks. This is more than one read from a socket, which the parser may buffer.
_FRAMING_BYTES = 512 * 1024
# A chunk with one byte of data takes six bytes.
_FRAMING_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits on the cost of one connection. Times in seconds.

    ``head_s``: from accepting a connection, or the first byte of a later request, to the end of the
    head. ``idle_s``: between two requests. ``body_s`` and ``body_bytes_per_s``: a body may take
    ``body_s`` plus a second for each ``body_bytes_per_s`` bytes. ``unread_s``: how long a client
    may accept no data; 0 means no limit. ``max_url`` and ``max_header`` must differ, because
    aiohttp's error identifies the exceeded limit only by its value.
    """

    head_s: float = 15.0
    idle_s: float = 75.0
    body_s: float = 20.0
    body_bytes_per_s: int = 1024
    unread_s: float = 300.0
    linger_s: float = 10.0
    max_url: int = 8190
    max_header: int = 8192


DEFAULT_LIMITS = ConnectionLimits()
ErrorResponse = Callable[[int, str], web.Response]
"""Creates the response to a request that violates HTTP or a limit, from status and detail."""


async def read_in_time(
    content: StreamReader, limits: ConnectionLimits, *, waiting: Callable[[], float]
) -> AsyncIterator[bytes]:
    """Yield the body in pieces. Raises ``TimeoutError`` if it takes longer than ``limits`` allow;
    the time that the caller spends on a piece is not counted. ``waiting``: the clock, in monotonic
    seconds."""
    spent_s = 0.0
    received = 0
    while True:
        began_at = waiting()
        async with asyncio.timeout(limits.body_s + received / limits.body_bytes_per_s - spent_s):
            piece = await content.readany()

        spent_s += waiting() - began_at
        received += len(piece)
        if not piece:
            return

        yield piece


async def read_while_arriving(content: StreamReader, pause_s: float) -> AsyncIterator[bytes]:
    """Yield the body in pieces, however long it takes. Raises ``TimeoutError`` if nothing arrives
    for ``pause_s`` seconds."""
    while True:
        async with asyncio.timeout(pause_s):
            piece = await content.readany()

        if not piece:
            return

        yield piece


class GuardedConnection(web.RequestHandler):
    """aiohttp's handler of one connection, within ``limits``, with error responses from
    ``respond``."""

    def __init__(
        self, server: web.Server, limits: ConnectionLimits, respond: ErrorResponse, **options: Any
    ) -> None:
        super().__init__(
            server,
            keepalive_timeout=limits.idle_s,
            lingering_time=limits.linger_s,
            max_line_size=limits.max_url,
            max_field_size=limits.max_header,
            access_log=None,  # type: ignore[arg-type]  # None means no access log
            **options,
        )
        self._limits = limits
        self._respond = respond
        self._head_timer: asyncio.TimerHandle | None = None
        self._framed: StreamReader | None = None
        self._framed_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        keep_alive(connection)
        limit_unread(connection, self._limits.unread_s)
        self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._head_arrived()
        self._framed = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        count = self._request_count
        super().data_received(data)
        for number, (message, payload) in enumerate(self._messages):
            if isinstance(message, RawRequestMessage) and message.chunked:
                # aiohttp treats the last trailer of a request as a header of the next one.
                self._messages[number] = (message._replace(should_close=True), payload)

        if self._request_count != count:
            self._head_arrived()
        elif self._current_request is not None:
            self._check_framing(self._current_request.content, len(data))
        elif self._head_timer is None and data and self._is_idle():
            self._await_head()

    def close(self) -> None:
        """Accept no further requests. aiohttp itself leaves an idle connection open, and drops
        incoming data."""
        is_idle = self._is_idle()
        super().close()
        if is_idle and self.transport is not None:
            self.transport.close()

    def _is_idle(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _await_head(self) -> None:
        self._head_timer = self._loop.call_later(self._limits.head_s, self._head_late)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_late(self) -> None:
        self._head_timer = None
        if self._request_count == 0 or self._is_idle():
            self.force_close()

    def _check_framing(self, content: StreamReader, size: int) -> None:
        if content.is_eof():
            self._framed = None
            return
        if content is not self._framed:
            self._framed = content
            self._framed_bytes = 0

        self._framed_bytes += size
        if self._framed_bytes > _FRAMING_BYTES + _FRAMING_PER_BYTE * content.total_bytes:
            content.set_exception(
                web.RequestPayloadError("its chunk extensions or trailers are too long")
            )
            self.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionResetError("the response cannot be completed")

        if isinstance(exc, http_exceptions.LineTooLong):
            status = 414 if exc.args[1] == self._limits.max_url else 431
            limits = self._limits
            detail = (
                f"its URL is limited to {limits.max_url} bytes, each header to {limits.max_header}"
            )
        else:
            detail = (message or "bad request").splitlines()[0].rstrip(":. ")

        response = self._respond(status, detail)
        response.force_close()
        return response


@dataclass(frozen=True)
class Listener:
    """How a server listens. ``options``: options for aiohttp's ``RequestHandler``. ``tls``: None
    for plain HTTP."""

    respond: ErrorResponse
    limits: ConnectionLimits = DEFAULT_LIMITS
    tls: ssl.SSLContext | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"


def listen_at(host: str, port: int, listening: socket.socket | None) -> dict[str, Any]:
    """Arguments of ``create_server``: a listening socket, or an address."""
    return {"host": host, "port": port} if listening is None else {"sock": listening}


class LocalSite(web.BaseSite):
    """A site of ``runner`` on ``listening``, a listening Unix socket, whose connections are
    ``GuardedConnection``. ``listener`` has no TLS."""

    def __init__(
        self, runner: web.BaseRunner, listening: socket.socket, listener: Listener
    ) -> None:
        super().__init__(runner, backlog=1024)
        self._listening = listening
        self._listener = listener

    @property
    def name(self) -> str:
        return f"unix://{self._listening.getsockname()}"

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        listener = self._listener
        assert server is not None
        loop = asyncio.get_running_loop()

        self._server = await loop.create_unix_server(
            lambda: GuardedConnection(
                server, listener.limits, listener.respond, loop=loop, **listener.options
            ),
            sock=self._listening,
            backlog=self._backlog,
        )


class GuardedSite(web.BaseSite):
    """A site of ``runner`` whose connections are ``GuardedConnection``. ``start`` raises
    ``OSError``.

    ``listening``: a socket that already listens there."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        listener: Listener,
        *,
        listening: socket.socket | None = None,
    ) -> None:
        self._listening = listening
        super().__init__(runner, ssl_context=listener.tls, backlog=1024)
        self._host = host
        self._port = port
        self._listener = listener

    @property
    def name(self) -> str:
        return f"{self._listener.scheme}://{self._host}:{self._port}"

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        listener = self._listener
        assert server is not None
        loop = asyncio.get_running_loop()

        self._server = await loop.create_server(
            lambda: GuardedConnection(
                server, listener.limits, listener.respond, loop=loop, **listener.options
            ),
            **listen_at(self._host, self._port, self._listening),
            ssl=listener.tls,
            ssl_handshake_timeout=listener.limits.head_s if listener.tls else None,
            backlog=self._backlog,
        )


def find_problem(guard: HeadGuard, request: web.BaseRequest) -> HeadRefusal | None:
    """Find an error in the head of ``request``."""
    names = [name for name, _ in request.raw_headers]
    return guard.find_problem(request.version, names, request.headers.get("Host", ""))
