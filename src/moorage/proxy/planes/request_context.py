"""Request context: one request of a client, with its progress and outcome."""

from __future__ import annotations

from aiohttp import web
from aiohttp.http import HttpVersion11

from moorage.common.aio.clock import Clock
from moorage.proxy.core import headers

CLIENT_CLOSED_REQUEST = 499
"""Status in logs and metrics for a client that disconnected first (nginx's code)."""


class RequestContext:
    """One request. ``status`` is the response's, 499 until there is one.

    ``started_at``: monotonic seconds. ``waited_s``: time spent waiting for the client's body and for a
    replica to become ready; it does not count as overhead of the proxy. ``response_started``: the head was
    sent, so the proxy can no longer send an error response.
    """

    __slots__ = (
        "expects_continue", "model", "request", "request_id", "response_started", "started_at", "status",
        "waited_s",
    )  # fmt: skip

    def __init__(self, request: web.BaseRequest, clock: Clock) -> None:
        self.request, self.started_at = request, clock.monotonic()
        self.request_id = headers.valid_request_id(request.headers.get("X-Request-Id")) or clock.new_id()
        self.model, self.status = "", CLIENT_CLOSED_REQUEST
        self.response_started = False
        self.waited_s = 0.0
        self.expects_continue = (
            request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11
        )

    async def send_continue(self) -> None:
        """Ask the client for the body, if it waits for 100 Continue."""
        if self.expects_continue:
            self.expects_continue = False
            await self.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # aiohttp takes output_size > 0 as "the response has started".
            self.request.writer.output_size = 0
