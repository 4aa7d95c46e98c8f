"""Request context: one client request on aiohttp, with its progress."""

from __future__ import annotations

import aiohttp
from aiohttp import web
from aiohttp.http import HttpVersion11

from moorage.common.aio.clock import Clock
from moorage.common.aio.sockets import reset
from moorage.proxy.core import headers
from moorage.proxy.core.flow import CLIENT_CLOSED_REQUEST
from moorage.proxy.core.stream_end import TAIL_BYTES


class RequestContext:
    """One request. ``status`` is the response's status, 499 until there is one.

    ``started_at``: monotonic seconds. ``response_started``: the head was sent, so the proxy can no
    longer send an error response. ``open_stream``: an event stream that started before a replica
    had the request. ``is_for_app``: the request is for an app, not for a model. ``relayed``: the
    replica's response, once it has started; ``tail``: the end of the part sent so far, None if no
    event can be added to it.
    """

    __slots__ = (
        "expects_continue",
        "is_for_app",
        "open_stream",
        "relayed",
        "request",
        "request_id",
        "response_started",
        "started_at",
        "status",
        "tail",
    )

    def __init__(self, request: web.BaseRequest, clock: Clock) -> None:
        self.request = request
        self.started_at = clock.monotonic()
        self.request_id = (
            headers.valid_request_id(request.headers.get("X-Request-Id")) or clock.new_id()
        )
        self.status = CLIENT_CLOSED_REQUEST
        self.response_started = False
        self.is_for_app = False
        self.open_stream: web.StreamResponse | None = None
        self.relayed: web.StreamResponse | None = None
        self.tail: bytes | None = None
        self.expects_continue = (
            request.headers.get("Expect", "").lower() == "100-continue"
            and request.version >= HttpVersion11
        )

    def take_for_app(self) -> None:
        """Record that the request is for an app."""
        self.is_for_app = True

    def answer(self, status: int) -> None:
        """Record that the proxy itself responds."""
        self.status = status

    def start(self, status: int) -> None:
        """Record that the head of a response with this status was sent."""
        self.status = status
        self.response_started = True

    def start_stream(self, stream: web.StreamResponse) -> None:
        """Record that the proxy's event stream has started."""
        self.open_stream = stream
        self.response_started = True

    def start_relay(self, response: web.StreamResponse, tail: bytes | None = None) -> None:
        """Record that a replica's response has started. ``tail``: None if no event can be added to
        it."""
        self.relayed = response
        self.tail = tail

    def relay(self, piece: bytes) -> None:
        """Record that this piece of the replica's response was sent."""
        if self.tail is not None:
            self.tail = (self.tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]

    async def send_continue(self) -> None:
        """Ask the client for the body if it is waiting for 100 Continue."""
        if self.expects_continue:
            self.expects_continue = False
            await self.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # aiohttp interprets output_size > 0 as "the response has started".
            self.request.writer.output_size = 0


def abort_connection(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Close the connection so that the client recognizes the response as incomplete."""
    response.force_close()
    transport = request.transport
    if transport is None:
        return

    if "Content-Length" not in response.headers and request.version < aiohttp.HttpVersion11:
        # An orderly close would mark the end of the body, so only a reset signals an error.
        reset(transport)
    else:
        transport.close()
