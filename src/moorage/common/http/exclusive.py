"""Client connections on which each response belongs to exactly one request.

A server may send more than was requested: a second response, a response before any request, an
unrequested upgrade, or a status that does not exist. aiohttp keeps such bytes for the next request
on the connection, which may be another client's. Here the connection is closed instead. If extra
bytes arrive in the same read as the end of a response, that response also fails, because it is
uncertain where it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpVersion10, HttpVersion11
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

# Maximum number of interim responses (1xx) before a response.
_MAX_INTERIM = 16


class ExclusiveConnector(aiohttp.TCPConnector):
    """``TCPConnector`` whose connections end at the first byte that does not answer a request.

    ``allow_upgrade``: accept a 101 as a response; the caller checks that its request asked for an
    upgrade.
    """

    def __init__(self, *, allow_upgrade: bool = False, **options: Any) -> None:
        super().__init__(**options)
        make: Callable[..., ResponseHandler] = _ExclusiveProtocol
        self._factory = partial(make, loop=self._loop, allow_upgrade=allow_upgrade)


async def read_some(body: StreamReader) -> bytes:
    """Read the next piece of a response, b"" at its end. Raises ``aiohttp.ClientError`` for a
    broken response, even if the error occurred after its end. aiohttp itself would return the last
    piece as if it were valid."""
    piece = await body.readany()
    if body.is_eof() and (error := body.exception()) is not None:
        raise error
    return piece


class _ExclusiveProtocol(ResponseHandler):
    def __init__(self, loop: Any, allow_upgrade: bool) -> None:
        super().__init__(loop)
        self._allow_upgrade = allow_upgrade
        self._is_awaited = False
        self._interim = 0
        self._body: StreamReader | None = None

    def set_response_params(self, **params: Any) -> None:
        """Note that a request starts."""
        self._is_awaited = True
        self._interim = 0
        self._body = None
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if data and not self._is_awaited and not self._upgraded and self._is_complete():
            self._refuse()
            return

        super().data_received(data)
        if (error := self.exception()) is not None:
            # Without data, aiohttp continues with buffered bytes. The error belongs to the
            # connection, and is raised later.
            self._interrupt(error, is_ended=bool(data))
        elif self._is_awaited:
            self._reschedule_timeout()  # aiohttp ends its timeout at a 1xx

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None:
            self._interrupt(exc)
        super().connection_lost(exc)

    def _interrupt(self, error: BaseException, *, is_ended: bool = False) -> None:
        """Pass the error to the reader of the response. aiohttp itself treats a reset as the end of
        a response without a length, and does not report malformed chunks. ``is_ended``: even if the
        body has just ended."""
        if is_ended and self._buffer:  # its head has not been read
            self._buffer.clear()
            self.set_exception(error)

        body = self._body
        if body is None or body is EMPTY_PAYLOAD or body.exception() is not None:
            return
        if is_ended or not body.is_eof():
            body.set_exception(
                aiohttp.ClientPayloadError(f"the response was interrupted: {error!r}")
            )

    def _is_complete(self) -> bool:
        return self._payload is None or self._payload.is_eof()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Called by the parser with each response."""
        message = data[0]
        status = message.code

        if not self._is_awaited:
            self._refuse()
            self._interrupt(aiohttp.ClientPayloadError("a second response arrived"), is_ended=True)
            return

        is_http1 = message.version in (HttpVersion10, HttpVersion11)
        if not (is_http1 and 100 <= status <= 999) or (status == 101 and not self._allow_upgrade):
            self._refuse()
            self.set_exception(HttpProcessingError(code=502, message=f"invalid status {status}"))
            return

        self._is_awaited = 100 <= status < 200 and status != 101
        self._interim += self._is_awaited
        if self._interim > _MAX_INTERIM:
            self._refuse()
            self.set_exception(
                HttpProcessingError(code=502, message="interim responses without an end")
            )
            return

        self._body = data[1]
        super().feed_data(data, size)

    def _refuse(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()
