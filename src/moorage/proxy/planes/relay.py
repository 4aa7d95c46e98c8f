"""Relay: copies a replica's response to the client, byte for byte."""

from __future__ import annotations

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from moorage.common.aio.sockets import reset
from moorage.proxy.core import headers
from moorage.proxy.core.error_response import SERVER, error_json
from moorage.proxy.core.retry import Failure
from moorage.proxy.planes.upstream import UpstreamResponse

_DONE = b"data: [DONE]"
# Bytes kept of the end of the stream: enough for the last event, with its line ends.
_TAIL = 32


async def relay(
    request: web.BaseRequest, upstream: UpstreamResponse, head: list[tuple[str, str]]
) -> tuple[web.StreamResponse, Failure | None]:
    """Respond to ``request`` with the response ``upstream``, under the headers ``head``.

    Returns a failure if the replica broke off. In that case the client got an error event (event streams) or
    a connection closed before the end of the body. Raises ``ConnectionError`` if the client has disconnected.
    """
    replica = upstream.response
    reason = headers.printable_reason(replica.reason)
    if replica.content.at_eof():
        # The body is complete already: head and body go out in one write.
        complete = web.Response(
            status=replica.status,
            reason=reason,
            headers=CIMultiDict(head),
            body=upstream.first_chunk,
        )
        return complete, None
    response = web.StreamResponse(status=replica.status, reason=reason, headers=CIMultiDict(head))
    await response.prepare(request)
    chunk, tail = upstream.first_chunk, b""
    while chunk:
        await response.write(chunk)
        tail = (tail + chunk[-_TAIL:])[-_TAIL:]
        try:
            chunk = await replica.content.readany()
        except aiohttp.ServerTimeoutError:
            await _interrupt(request, response, tail, Failure.IDLE_TIMEOUT)
            return response, Failure.IDLE_TIMEOUT
        except aiohttp.ClientError:
            await _interrupt(request, response, tail, Failure.INTERRUPTED)
            return response, Failure.INTERRUPTED
    await response.write_eof()
    return response, None


async def _interrupt(
    request: web.BaseRequest, response: web.StreamResponse, tail: bytes, failure: Failure
) -> None:
    """End a response that will stay incomplete, so that no client takes it for a complete one.

    An event stream ends with an error event and without [DONE], but is complete as HTTP. The client may reuse
    the connection then, and closing it now would break its next request.
    """
    is_plain = "Content-Length" not in response.headers and "Content-Encoding" not in response.headers
    if headers.is_event_stream(response.headers.get("Content-Type", "")) and is_plain:
        if _DONE in tail and _is_event_end(tail):
            await response.write_eof()  # the client has received everything
            return
        # End a partial event first, or it would swallow ours.
        separator = b"" if _is_event_end(tail) else b"\n\n"
        await response.write(separator + b"data: " + _error_event(failure) + b"\n\n")
        await response.write_eof()
        return
    abort_connection(request, response)


def abort_connection(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Close the connection so that the client recognizes the response as incomplete."""
    response.force_close()
    transport = request.transport
    if transport is None:
        return
    if "Content-Length" not in response.headers and request.version < aiohttp.HttpVersion11:
        # Here the end of the connection marks the end of the body, so only a reset signals an error.
        reset(transport)
    else:
        transport.close()


def _is_event_end(tail: bytes) -> bool:
    return tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))


def _error_event(failure: Failure) -> bytes:
    if failure is Failure.IDLE_TIMEOUT:
        message = "The replica stopped sending data in the middle of the response."
        return error_json(message, SERVER, "upstream_timeout")
    message = "The connection to the replica was lost in the middle of the response."
    return error_json(message, SERVER, "upstream_error")
