"""Exchange of a complete request for its response, as decided by the flow.

It has one of four phases, depending on the part of the response that its client has received:

    IDLE          there is no request
    SILENT        nothing
    COMMENTING    comments, in an event stream that the proxy has started
    RELAYING      a replica's response, from its first byte on

Each request starts and ends in IDLE and never returns to an earlier phase in between. ``STEPS``
lists the allowed steps, and the tests check every exchange against it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from moorage.common.aio.sockets import reset
from moorage.common.aio.tasks import spawn
from moorage.common.link.messages import Target
from moorage.common.telemetry.log_context import LOG_SUBJECT
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.commands import Break, Command, Send, StartResponse, WaitForReplica
from moorage.proxy.core.error_response import ErrorResponse, invalid_key
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.limits.limiter import Observer
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.stream_end import TAIL_BYTES
from moorage.proxy.planes.asyncio import chunks
from moorage.proxy.planes.asyncio.heads import ResponseHead
from moorage.proxy.planes.asyncio.host import ConnectionHost
from moorage.proxy.planes.asyncio.messages import KnownHead, lines, own_lines, own_response
from moorage.proxy.planes.asyncio.upstream import UpstreamConnection
from moorage.proxy.planes.failure_log import log_failure
from moorage.proxy.planes.log_subject import log_fields
from moorage.proxy.planes.providers import pool_address

_IDLE: Final = 0
_SILENT: Final = 1
_COMMENTING: Final = 2
_RELAYING: Final = 3
STEPS: Final = {
    _IDLE: frozenset({_SILENT}),
    _SILENT: frozenset({_COMMENTING, _RELAYING, _IDLE}),
    _COMMENTING: frozenset({_RELAYING, _IDLE}),
    _RELAYING: frozenset({_IDLE}),
}

# How the client detects the end of the body.
_BY_LENGTH: Final = 0  # or there is no body
_BY_CHUNKS: Final = 1
_BY_CLOSE: Final = 2

_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n\r\n"
_CLOSE: Final = b"Connection: close\r\n"
_EVENT_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: "
    b"no-cache\r\n"
    b"X-Accel-Buffering: no\r\nServer: moorage\r\n"
)


class Exchange:
    """The exchange of one client connection, for its requests one after another.

    Call ``begin``, then ``do`` with each of the flow's commands. It calls ``on_end`` when a
    response is complete; the connection can then be reused if it ``keeps_alive``. An interrupted
    response closes the connection instead. ``_tail``: the last relayed bytes, None if no event can
    be added to them.
    """

    def __init__(
        self,
        plane: ConnectionHost[Any],
        transport: asyncio.Transport,
        on_end: Callable[[float], None],
    ) -> None:
        self._plane = plane
        self._transport = transport
        self._on_end = on_end
        self._phase = _IDLE
        self.flow: RequestFlow | None = None

        # from the request's head
        self._known: KnownHead | None = None
        self._has_http11 = True
        self._wants_body = True
        self.keeps_alive = True

        # to a replica
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._upstream: UpstreamConnection | None = None

        # to the client
        self._framing = _BY_LENGTH
        self._observe: Observer | None = None
        self._tail: bytes | None = None
        self._is_paused = False

    def begin(
        self,
        flow: RequestFlow,
        *,
        keeps_alive: bool = True,
        has_http11: bool = True,
        wants_body: bool = True,
    ) -> None:
        assert self._phase == _IDLE
        self._phase = _SILENT
        self.flow = flow
        self.keeps_alive = keeps_alive
        self._has_http11 = has_http11
        self._wants_body = wants_body
        LOG_SUBJECT.set(self)

    def close_after_response(self) -> None:
        """Do not reuse the connection."""
        self.keeps_alive = False

    def log_fields(self) -> dict[str, str]:
        """The current request's fields for log lines."""
        return {} if self.flow is None else log_fields(self.flow)

    def know(self, head: KnownHead) -> None:
        """Remember the admitted head of the request."""
        self._known = head

    def do(self, command: Command) -> None:
        if isinstance(command, Send):
            self._send(command.target, command.is_anew)
        elif isinstance(command, ErrorResponse | LocalResponse):
            self._answer(command)
        elif isinstance(command, WaitForReplica):
            self._hold(command)
        elif isinstance(command, Break):
            self._break(command)

    def leave(self) -> None:
        """Stop the replica's work, because the client has disconnected or is being dropped."""
        self._drop_replica()
        if (flow := self.flow) is not None:
            self.flow = None
            self._phase = _IDLE
            flow.client_gone(self._plane.monotonic())

    def _drop_replica(self) -> None:
        self._stop_timer()
        if (connecting := self._connecting) is not None:
            self._connecting = None
            connecting.cancel()
        if (upstream := self._upstream) is not None:
            self._upstream = None
            upstream.close()

    def revoke(self) -> None:
        """End the request and the replica's work for it, because its key has lost its rights."""
        flow = self.flow
        now = self._plane.monotonic()
        assert flow is not None
        self._drop_replica()
        if self._phase == _RELAYING:
            self._break(flow.key_revoked(self._tail, now))
        else:
            self.do(flow.refuse(invalid_key(given=True), now))

    def lose_agent(self) -> None:
        """Handle the revocation of the replica's agent as if the replica were gone."""
        self._drop_replica()
        failure = Failure.INTERRUPTED if self._phase == _RELAYING else Failure.CONNECT
        self.response_failed(failure, "its agent was revoked")

    def pause(self) -> None:
        """Pause, because the client reads slowly."""
        self._is_paused = True
        if self._upstream is not None and self._phase == _RELAYING:
            self._upstream.pause()

    def resume(self) -> None:
        self._is_paused = False
        if self._upstream is not None:
            self._upstream.resume()

    # To a replica

    def _hold(self, command: WaitForReplica) -> None:
        assert self.flow is not None
        if command.comment:
            self._open_stream()
            comment = command.comment
            self._transport.write(
                chunks.encode(comment) if self._framing == _BY_CHUNKS else comment
            )
        self.flow.resume_by(self._resume)
        wait_s = max(0.0, command.until - self._plane.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._hold_over)

    def _hold_over(self) -> None:
        self._timer = None
        if self.flow is not None:
            self.do(self.flow.timer(self._plane.monotonic()))

    def _resume(self, command: Command) -> None:
        self._stop_timer()
        self.do(command)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, target: Target, is_anew: bool) -> None:
        flow = self.flow
        plane = self._plane
        assert flow is not None
        upstream = None
        if not is_anew:
            upstream = plane.upstreams.take(
                pool_address(target) if target.tls else (target.host, target.port)
            )

        if upstream is not None:
            self._forward(upstream, target)
            flow.sent(plane.monotonic())
        else:
            flow.sent(plane.monotonic())
            self._connecting = spawn("proxy.connect", self._connect(target))

    async def _connect(self, target: Target) -> None:
        pool = self._plane.upstreams
        # the connection's callbacks run in this context, for later requests too
        LOG_SUBJECT.set(None)
        try:
            if target.tls:
                upstream = await pool.connect_to_provider(target)
            else:
                upstream = await pool.connect((target.host, target.port))
        except (OSError, TimeoutError) as error:
            self._connecting = None
            self.response_failed(Failure.CONNECT, str(error) or type(error).__name__)
            return

        self._connecting = None
        self._forward(upstream, target)

    def _forward(self, upstream: UpstreamConnection, target: Target) -> None:
        flow = self.flow
        known = self._known
        assert flow is not None
        assert known is not None
        self._upstream = upstream
        payload = flow.payload
        head = known.for_replica(flow.path, target, flow.request_id, len(payload))
        if flow.traceparent:
            head = b"%btraceparent: %b\r\n\r\n" % (head[:-2], flow.traceparent.encode())

        upstream.send(self, head, payload)

    # To the client

    def _answer(self, response: ErrorResponse | LocalResponse) -> None:
        """Send a response from the proxy itself."""
        flow = self.flow
        plane = self._plane
        assert flow is not None
        now = plane.monotonic()
        pairs = [("Server", "moorage")]
        if response.status != 204:
            pairs.append(("Content-Type", "application/json"))
        if isinstance(response, ErrorResponse):
            pairs += response.headers.items()
            body = response.body(anthropic=flow.is_anthropic)
            if response.close:
                self.keeps_alive = False
        else:
            body = response.body

        pairs.append(("x-request-id", flow.request_id))
        pairs += flow.cors
        if not self.keeps_alive or plane.is_retiring:
            self.keeps_alive = False
            pairs.append(("Connection", "close"))

        self._transport.write(
            own_response(
                response.status, plane.date_line(now), pairs, body=body, with_body=self._wants_body
            )
        )
        self._end(now)

    def _open_stream(self) -> None:
        """Start an event stream from the proxy, which the replica's response later continues."""
        if self._phase == _COMMENTING:
            return

        assert self.flow is not None
        self._phase = _COMMENTING
        self._framing = _BY_CHUNKS if self._has_http11 else _BY_CLOSE
        framing = _CHUNKED if self._has_http11 else b"\r\n"
        if not self.keeps_alive or not self._has_http11 or self._plane.is_retiring:
            self.keeps_alive = False
            framing = _CLOSE + framing

        date = self._plane.date_line(self._plane.monotonic())
        own = lines([("x-request-id", self.flow.request_id), *self.flow.cors])
        self._transport.write(_EVENT_STREAM + date + own + framing)

    def response(self, head: ResponseHead, length: int | None, piece: bytes, ended: bool) -> None:
        if ended:
            self._upstream = None
        if self._phase != _RELAYING:
            self._respond(head, length, piece, ended)
            return
        if (observe := self._observe) is not None:
            piece = _observed(observe, piece, ended)
        if (tail := self._tail) is not None:
            self._tail = piece if len(piece) >= TAIL_BYTES else tail[-TAIL_BYTES:] + piece

        if self._framing == _BY_CHUNKS:
            piece = chunks.encode(piece) if piece else b""
            self._transport.write(piece + chunks.LAST if ended else piece)
        elif piece:
            self._transport.write(piece)

        if ended:
            self._complete(self._plane.monotonic())

    def _respond(self, head: ResponseHead, length: int | None, piece: bytes, ended: bool) -> None:
        flow = self.flow
        plane = self._plane
        assert flow is not None
        if head.status == 401:
            log_failure(flow, Failure.KEY_REJECTED, "it rejected the proxy's own key with 401")

        now = plane.monotonic()
        command = flow.upstream_head(
            head.status, head.content_type, now=now, begin=piece, coding=head.coding
        )
        if not isinstance(command, StartResponse):
            if (upstream := self._upstream) is not None:
                self._upstream = None
                upstream.close()

            self.do(command)
            return

        is_stream_open = self._phase == _COMMENTING
        self._phase = _RELAYING
        self._tail = piece if head.takes_event else None
        if (observe := command.observe) is not None:
            piece = _observed(observe, piece, ended)

        self._observe = observe
        if is_stream_open:
            self._go_on(piece, ended, now)
            return

        self._framing = _BY_LENGTH
        if head.has_length:
            framing = b"Content-Length: %d\r\n\r\n" % (length or 0)
        elif head.is_bodiless:
            framing = b"\r\n"
        elif self._has_http11:
            self._framing = _BY_CHUNKS
            framing = _CHUNKED
            piece = (chunks.encode(piece) if piece else b"") + (chunks.LAST if ended else b"")
        else:
            self._framing = _BY_CLOSE
            self.keeps_alive = False
            framing = b"\r\n"

        if not self.keeps_alive or plane.is_retiring:
            self.keeps_alive = False
            framing = _CLOSE + framing

        date = b"" if head.has_date else plane.date_line(now)
        self._transport.write(
            b"".join((head.start, date, own_lines(flow, command), framing, piece))
        )
        if ended:
            self._complete(now)
        elif self._is_paused and self._upstream is not None:
            self._upstream.pause()

    def _go_on(self, piece: bytes, ended: bool, now: float) -> None:
        """Start the response within a stream that is already open."""
        if self._framing == _BY_CHUNKS:
            piece = (chunks.encode(piece) if piece else b"") + (chunks.LAST if ended else b"")
        self._transport.write(piece)
        if ended:
            self._complete(now)
        elif self._is_paused and self._upstream is not None:
            self._upstream.pause()

    def response_failed(self, failure: Failure, detail: str) -> None:
        flow = self.flow
        now = self._plane.monotonic()
        assert flow is not None
        self._upstream = None
        if self._phase != _RELAYING:
            # No part of the response has reached the client, regardless of which side failed.
            failure = Failure.DISCONNECT if failure is Failure.INTERRUPTED else failure
            log_failure(flow, failure, detail)
            self.do(flow.upstream_failed(failure, now))
            return

        log_failure(flow, failure, detail)
        self._break(flow.upstream_lost(failure, self._tail, now))

    def _break(self, command: Break) -> None:
        if (event := command.event) is None:
            if self._framing == _BY_CLOSE:
                reset(self._transport)  # otherwise the client would take it for the end of the body
            else:
                self._transport.close()

            return

        if self._observe is not None:
            event = self._observe(b"") + event
        if self._framing == _BY_CHUNKS:
            event = (chunks.encode(event) if event else b"") + chunks.LAST

        self._transport.write(event)
        self._end(self._plane.monotonic())

    def _complete(self, now: float) -> None:
        assert self.flow is not None
        self.flow.upstream_end(now, self._tail)
        self._end(now)

    def _end(self, now: float) -> None:
        self._phase = _IDLE
        self.flow = None
        self._known = None
        self._observe = None
        self._tail = None
        self._on_end(now)


def _observed(observe: Observer, piece: bytes, ended: bool) -> bytes:
    piece = observe(piece)
    if ended and (last := observe(b"")):
        return piece + last
    return piece
