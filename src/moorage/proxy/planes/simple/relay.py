"""Relay: copies a replica's response to the client, byte for byte, including a WebSocket's data."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from moorage.common.aio.clock import Clock
from moorage.common.http.exclusive import read_some
from moorage.proxy.apps import RequestContext, abort_connection, relay_upgrade
from moorage.proxy.core import headers
from moorage.proxy.core.commands import Break, StartResponse
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.websocket import Farewell, FrameTracker
from moorage.proxy.planes.failure_log import log_failure
from moorage.proxy.planes.simple.upstream import UpstreamResponse


async def relay(
    context: RequestContext,
    attempt: UpstreamResponse,
    start: StartResponse,
    flow: RequestFlow,
    *,
    clock: Clock,
) -> web.StreamResponse:
    """Respond to a request with a replica's response, within the open stream if there is one.

    If the replica breaks off, the client gets an error event (for event streams), or its connection
    is closed before the end of the body. Raises ``ConnectionError`` if the client has disconnected.
    """
    request = context.request
    replica = attempt.response
    assert flow.target is not None
    own = headers.for_client(flow.target, start.overhead_s, flow.request_id)
    kept = headers.kept_for_client(replica.headers.items())
    head = CIMultiDict([*kept, *own, *start.more, *flow.cors])
    reason = headers.printable_reason(replica.reason)
    if replica.content.at_eof() and start.observe is None and context.open_stream is None:
        # The body is already complete, so head and body are sent in one write.
        flow.upstream_end(clock.monotonic())
        return web.Response(
            status=replica.status, reason=reason, headers=head, body=attempt.first_piece
        )

    response = context.open_stream
    is_open = response is not None
    if response is None:
        response = web.StreamResponse(status=replica.status, reason=reason, headers=head)

    context.start_relay(response, b"" if _takes_event(response) else None)
    if not is_open:
        await response.prepare(request)

    observe = start.observe or _unchanged
    piece = attempt.first_piece
    failure = None
    while piece:
        if shown := observe(piece):
            await response.write(shown)
            context.relay(shown)

        try:
            piece = await read_some(replica.content)
        except aiohttp.ServerTimeoutError:
            failure = Failure.IDLE_TIMEOUT
            break
        except aiohttp.ClientError:
            failure = Failure.INTERRUPTED
            break

    if rest := observe(b""):
        await response.write(rest)

    if failure is None:
        await response.write_eof()
        flow.upstream_end(clock.monotonic(), context.tail)
    else:
        log_failure(flow, failure, "in the middle of a response")
        await break_off(context, flow.upstream_lost(failure, context.tail, clock.monotonic()))

    return response


async def break_off(context: RequestContext, command: Break) -> web.StreamResponse:
    """Break off a replica's incomplete response."""
    response = context.relayed
    assert response is not None
    if command.event is None or not response.prepared:
        abort_connection(context.request, response)
    else:
        await response.write(command.event)
        await response.write_eof()
    return response


async def join(
    context: RequestContext,
    attempt: UpstreamResponse,
    start: StartResponse,
    flow: RequestFlow,
    *,
    clock: Clock,
    cancelled: Callable[[], Farewell],
) -> web.StreamResponse:
    """Switch to a WebSocket like the replica, and relay it until either side closes it.

    A client gets a close frame from the proxy if its replica disconnects without one, and also if
    its request is cancelled, with the reason from ``cancelled``. No close frame can be sent in the
    middle of a frame."""
    replica = attempt.response
    assert flow.target is not None
    own = headers.for_client(flow.target, start.overhead_s, flow.request_id)
    head = CIMultiDict([*headers.upgrade_for_client(replica.headers.items()), *own, *start.more])
    switched = web.StreamResponse(status=101, headers=head)
    context.start_relay(switched)
    observe = start.observe or _unchanged
    frames = FrameTracker()

    def track(piece: bytes) -> bytes:
        frames.feed(piece)
        return observe(piece)

    def farewell(is_cancelled: bool) -> bytes:
        if not frames.may_close:
            return b""
        return (cancelled() if is_cancelled else Farewell.REPLICA_LOST).frame()

    try:
        return await relay_upgrade(
            context.request, replica, response=switched, observe=track, farewell=farewell
        )
    finally:
        flow.upstream_end(clock.monotonic())


def _takes_event(response: web.StreamResponse) -> bool:
    return (
        headers.is_event_stream(response.headers.get("Content-Type", ""))
        and "Content-Length" not in response.headers
        and "Content-Encoding" not in response.headers
    )


def _unchanged(piece: bytes) -> bytes:
    return piece
