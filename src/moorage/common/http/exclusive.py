"""Client connections on which each answer belongs to one request.

A server may send more than it was asked for: a second response, a response before any request, an upgrade
that nobody wanted, a status that does not exist. aiohttp keeps such bytes for the next request on the
connection, which may be another client's. Here the connection is closed instead.
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
from aiohttp.streams import StreamReader

# Interim responses (1xx) before a response.
_MAX_INTERIM = 16


class ExclusiveConnector(aiohttp.TCPConnector):
    """``TCPConnector`` whose connections end with the first byte that no request has asked for.

    ``allow_upgrade``: a 101 is a response; the caller checks that its request asked for it.
    """

    def __init__(self, *, allow_upgrade: bool = False, **options: Any) -> None:
        super().__init__(**options)
        make: Callable[..., ResponseHandler] = _ExclusiveProtocol
        self._factory = partial(make, loop=self._loop, allow_upgrade=allow_upgrade)


class _ExclusiveProtocol(ResponseHandler):
    def __init__(self, loop: Any, allow_upgrade: bool) -> None:
        super().__init__(loop)
        self._allow_upgrade = allow_upgrade
        self._is_awaited = False
        self._interim = 0

    def set_response_params(self, **params: Any) -> None:
        """A request begins."""
        self._is_awaited, self._interim = True, 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if data and not self._is_awaited and not self._upgraded and self._is_complete():
            self._refuse()
            return
        super().data_received(data)
        if (error := self.exception()) is not None:
            self._interrupt(error)
        elif self._is_awaited:
            self._reschedule_timeout()  # aiohttp ends its timeout with a 1xx

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None:
            self._interrupt(exc)
        super().connection_lost(exc)

    def _interrupt(self, error: BaseException) -> None:
        """Tell the reader of the body: aiohttp takes a reset for its end where it has no length, and tells
        nobody when a chunk is malformed."""
        body = self._payload
        if isinstance(body, StreamReader) and not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError(f"the response broke off: {error!r}"))

    def _is_complete(self) -> bool:
        return self._payload is None or self._payload.is_eof()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Called by the parser with each response."""
        message = data[0]
        status = message.code
        if not self._is_awaited:
            self._refuse()
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
            self.set_exception(HttpProcessingError(code=502, message="interim responses without an end"))
            return
        super().feed_data(data, size)

    def _refuse(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()
