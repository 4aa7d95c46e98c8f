"""One request, and what became of it so far."""

from __future__ import annotations

from aiohttp import web
from aiohttp.http import HttpVersion11

from moorage.common.aio.clock import Clock
from moorage.proxy.core import headers

CLIENT_LEFT = 499


class Exchange:
    """One request and what became of it so far."""

    __slots__ = (
        "began", "code", "committed", "model", "request", "request_id", "waited",
        "waits_for_continue",
    )  # fmt: skip

    def __init__(self, request: web.BaseRequest, clock: Clock) -> None:
        self.request, self.began = request, clock.monotonic()
        given = headers.usable_request_id(request.headers.get("X-Request-Id"))
        self.request_id = given or clock.new_id()
        self.model, self.code = "", CLIENT_LEFT
        self.committed = False
        self.waited = 0.0  # seconds: for the client's body, and for a replica to be ready
        self.waits_for_continue = (
            request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11
        )

    async def let_body_come(self) -> None:
        """Say that the body may be sent, where that is waited for."""
        if self.waits_for_continue:
            self.waits_for_continue = False
            await self.request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.request.writer.output_size = 0
