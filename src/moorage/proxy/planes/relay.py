"""Moving a replica's answer to the client, byte for byte."""

from __future__ import annotations

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from moorage.common.aio.sockets import reset
from moorage.proxy.core import headers
from moorage.proxy.core.error_response import SERVER, error_json
from moorage.proxy.core.retry import Failure
from moorage.proxy.planes.upstream import Opened

_DONE = b"data: [DONE]"
_TAIL = 32


async def relay(
    request: web.BaseRequest, opened: Opened, head: list[tuple[str, str]]
) -> tuple[web.StreamResponse, Failure | None]:
    """Answer ``request`` with what ``opened`` brings, under the headers ``head``.

    The failure tells how the replica broke off, if it did: then the client got an error event (event
    streams) or a connection closed before the end of the body. Raises ``ConnectionError`` when the
    client has left.
    """
    replica = opened.response
    if replica.content.at_eof():
        # All there already: head and body go out in one write.
        whole = web.Response(
            status=replica.status, reason=replica.reason, headers=CIMultiDict(head), body=opened.first
        )
        return whole, None
    answer = web.StreamResponse(status=replica.status, reason=replica.reason, headers=CIMultiDict(head))
    await answer.prepare(request)
    chunk, tail = opened.first, b""
    while chunk:
        await answer.write(chunk)
        tail = (tail + chunk[-_TAIL:])[-_TAIL:]
        try:
            chunk = await replica.content.readany()
        except aiohttp.ServerTimeoutError:
            await _break_off(request, answer, tail, Failure.SILENT)
            return answer, Failure.SILENT
        except aiohttp.ClientError:
            await _break_off(request, answer, tail, Failure.BROKEN)
            return answer, Failure.BROKEN
    await answer.write_eof()
    return answer, None


async def _break_off(
    request: web.BaseRequest, answer: web.StreamResponse, tail: bytes, failure: Failure
) -> None:
    """End an answer that will not be complete so that nobody can take it for a complete one.

    An event stream ends with an error event and without [DONE], but whole as far as HTTP goes: a client
    that keeps the connection may use it again, and closing it now would break its next request.
    """
    plain = "Content-Length" not in answer.headers and "Content-Encoding" not in answer.headers
    if headers.is_event_stream(answer.headers.get("Content-Type", "")) and plain:
        if _DONE in tail and _at_event_end(tail):
            await answer.write_eof()  # the client has all of it
            return
        # A half event must not swallow ours.
        gap = b"" if _at_event_end(tail) else b"\n\n"
        await answer.write(gap + b"data: " + _error(failure) + b"\n\n")
        await answer.write_eof()
        return
    cut_off(request, answer)


def cut_off(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Close the connection so that the answer cannot pass for a whole one."""
    answer.force_close()
    transport = request.transport
    if transport is None:
        return
    if "Content-Length" not in answer.headers and request.version < aiohttp.HttpVersion11:
        # Here the end of the connection means the end of the body: only a reset says otherwise.
        reset(transport)
    else:
        transport.close()


def _at_event_end(tail: bytes) -> bool:
    return tail.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))


def _error(failure: Failure) -> bytes:
    if failure is Failure.SILENT:
        return error_json("The replica fell silent in the middle of the answer.", SERVER, "upstream_timeout")
    return error_json("The replica was lost in the middle of the answer.", SERVER, "upstream_error")
