"""A client's connection: reads requests one after another, within time and size limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Final, cast

from moorage.common.aio.sockets import keep_alive, limit_unread
from moorage.proxy.core import error_response
from moorage.proxy.core.body_expander import BodyExpander
from moorage.proxy.core.commands import READ_BODY, Command
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.headers import valid_request_id
from moorage.proxy.core.request_body import WHOLE_BYTES
from moorage.proxy.core.traced_flow import begin_flow
from moorage.proxy.planes.asyncio.chunks import BadChunks, ChunkDecoder
from moorage.proxy.planes.asyncio.exchange import Exchange
from moorage.proxy.planes.asyncio.heads import (
    BARE_LF,
    LENGTH,
    MAX_HEAD,
    MAX_URL,
    BadHead,
    Pattern,
    RequestHead,
    too_long,
)
from moorage.proxy.planes.asyncio.host import ConnectionHost
from moorage.proxy.planes.asyncio.messages import KnownHead, KnownHeads

if TYPE_CHECKING:
    from moorage.proxy.core.routes import IndexedTable

_NEVER = float("inf")
# The largest body of a refused request that is read to its end, so that the connection stays
# usable.
_SMALL_BODY = 65_536
# The most bytes of later requests that are read ahead.
_MAX_AHEAD: Final = 65_536
# Heads that are read before other connections get their turn, because each may be answered
# immediately.
_HEADS_AT_ONCE: Final = 32
_UNKNOWN: Final = -1
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# States in which the connection reads data: it waits for a head, a body, the end of an unwanted
# body, or its own end. States in which arriving data has to wait: it waits for its turn to read
# more heads, for its turns to read a large body, or for a response.
_HEAD: Final = 0
_BODY: Final = 1
_SKIP: Final = 2
_LINGER: Final = 3
_CLOSED: Final = 4
_TURN: Final = 5
_READING: Final = 6
_RESPONSE: Final = 7


class ClientConnection:
    """An ``asyncio.Protocol``, but not a subclass, which would prevent its compilation.

    ``deadline``: the monotonic second by which the expected data must have arrived."""

    def __init__(self, plane: ConnectionHost[ClientConnection]) -> None:
        self._plane = plane
        self._mode = _HEAD
        self._ahead = b""

        # by the deadline; between two requests, this is the end of the pause
        self._is_head_timed = True
        self._is_advancing = False
        self._is_reading_paused = False
        self._body: BytesIO | None = None  # its received part
        self._decoder: ChunkDecoder | None = None

        # length of the rest of the body, or _UNKNOWN
        self._received = 0
        self._left = 0

        # the head, with the revision of credentials
        self._last: tuple[int, Pattern, KnownHead] | None = None
        self.deadline = _NEVER

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self._mode in (_BODY, _READING, _RESPONSE)

    def close(self) -> None:
        """Close the connection once everything has been sent."""
        self._mode = _CLOSED
        self.deadline = _NEVER
        self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately, even in the middle of a message."""
        self._exchange.leave()
        self._transport.abort()

    def credentials_changed(self, table: IndexedTable, unix_now: float) -> None:
        """End the current request if its key has lost its rights or its replica's agent was
        revoked."""
        flow = self._exchange.flow
        if flow is None or self._mode not in (_BODY, _READING, _RESPONSE):
            return

        if flow.may_go_on(table, unix_now):
            if flow.is_at_revoked(table):
                self._exchange.lose_agent()
        elif self._mode == _BODY:
            self._refuse(error_response.invalid_key(given=True))
        else:
            self._exchange.revoke()

    def late(self) -> None:
        """Handle a missed deadline."""
        self.deadline = _NEVER
        if self._mode == _HEAD and self._ahead:
            self._refuse_head(
                408, f"its head did not arrive within {self._plane.timeouts.head_s:g} s"
            )
        elif self._mode == _BODY:
            self._refuse(error_response.body_timeout(self._plane.timeouts.body_s))
        else:
            self.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are not subclasses.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self._exchange = Exchange(self._plane, transport, self._ended)
        peer = transport.get_extra_info("peername")
        self._is_trusted = self._plane.trusted.contains(peer[0] if peer else None)
        self._heads = self._plane.heads_of_trusted if self._is_trusted else self._plane.heads

        connection = transport.get_extra_info("socket")
        keep_alive(connection)
        limit_unread(connection, self._plane.timeouts.unread_s)
        self.deadline = self._plane.monotonic() + self._plane.timeouts.head_s
        self._plane.clients.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._mode = _CLOSED
        self._is_reading_paused = False
        self._exchange.leave()
        self._plane.disconnected(self)

    def data_received(self, data: bytes) -> None:
        self._ahead = self._ahead + data if self._ahead else data
        if self._mode < _TURN:
            self._advance()
        elif len(self._ahead) > _MAX_AHEAD and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Handle the end of input; asyncio closes the connection."""

    def pause_writing(self) -> None:
        self._exchange.pause()

    def resume_writing(self) -> None:
        self._exchange.resume()

    # Reading

    def _advance(self) -> None:
        """Process received data until a request waits for its response, or other connections must
        get their turn."""
        self._is_advancing = True
        heads = _HEADS_AT_ONCE
        while self._ahead:
            mode = self._mode
            if mode == _HEAD:
                if heads == 0:
                    self._mode = _TURN
                    self._plane.turns.take(self._advance_again, _nothing)
                    break

                heads -= 1
                if not self._read_head():
                    break
            elif mode == _BODY:
                self._read_body()
            elif mode in (_SKIP, _LINGER):
                self._skip()
            elif mode >= _TURN:
                break
            else:
                self._ahead = b""

        self._is_advancing = False

    def _advance_again(self) -> bool:
        if self._mode == _TURN:
            self._mode = _HEAD
            self._advance()
        return False

    def _read_head(self) -> bool:
        """Read a head. Returns False if it is incomplete."""
        data = self._ahead
        plane = self._plane
        last = self._last
        if last is not None and last[0] == plane.router.credentials_revision:
            length, end = last[1].match(data)
            if 0 <= length <= last[2].max_body:
                self._begin_known(last[2], length, end)
                return True

        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or end > MAX_HEAD:
            return self._check_partial_head(data)

        found = LENGTH.search(data, 0, end - 2)
        if found is None or (length := int(found[1])) > plane.max_body:
            self._begin(data, end, None)
            return True

        revision = plane.router.credentials_revision
        key = data[: found.start(1)] + data[found.end(1) : end]
        known = self._heads.get(key, revision)
        if known is None or length > known.max_body:
            self._begin(data, end, key)
        else:
            self._last = revision, Pattern(data, found, end), known
            self._begin_known(known, length, end)

        return True

    def _begin_known(self, known: KnownHead, length: int, end: int) -> None:
        """Start a request whose head equals an admitted one. ``end``: the end of its head."""
        plane = self._plane
        data = self._ahead
        now = plane.monotonic()
        router = plane.router
        if router.tracer is None:
            flow = RequestFlow(router, plane.new_id(), now)
        else:
            flow = begin_flow(router, plane.new_id(), now)

        self._exchange.begin(flow)
        unix_now = plane.clock.now().timestamp() if known.expires else 0.0
        command = flow.head_again(known.admitted, now, unix_now)
        self._is_head_timed = False
        if command is READ_BODY and len(data) - end == length:
            # The usual case: exactly one complete request has arrived.
            self._ahead = b""
            self._exchange.know(known)
            self._complete(data[end:], now)
            return

        self._ahead = data[end:]
        self._left = length
        self._go_on(command, known, now)

    def _begin(self, data: bytes, end: int, key: bytes | None) -> None:
        """Start a request with an unknown head. ``key``: the key under which the head can be
        remembered, or None."""
        plane = self._plane
        exchange = self._exchange
        now = plane.monotonic()

        try:
            head = RequestHead(data[:end].lstrip(b"\r\n"), plane.guard)
        except BadHead as error:
            self._refuse_head(error.status, error.detail)
            return

        if plane.is_for_other(head):
            self._hand_over(data)
            return

        self._ahead = data[end:]
        self._is_head_timed = False
        asked_id = valid_request_id(head.fields.get("X-Request-Id"))
        flow = begin_flow(plane.router, asked_id or plane.new_id(), now)
        exchange.begin(
            flow,
            keeps_alive=head.keeps_alive,
            has_http11=head.version == (1, 1),
            wants_body=head.method != "HEAD",
        )
        self._left = _UNKNOWN if head.length is None else head.length
        self._decoder = ChunkDecoder() if head.length is None else None
        unix_now = plane.clock.now().timestamp()
        command = flow.head(
            head.method,
            head.path,
            fields=head.fields,
            size=head.length,
            now=now,
            unix_now=unix_now,
            query=head.query,
        )
        waits = head.expects_continue and not self._ahead
        if command is not READ_BODY:
            if waits:
                # The client may or may not send its body now, so the next bytes are ambiguous.
                # Close immediately.
                exchange.close_after_response()
                self._left = 0

            self._go_on(command, None, now)
            return

        known = KnownHead(head, flow, is_trusted=self._is_trusted)
        if waits:
            self._transport.write(_CONTINUE)
        elif key and end <= KnownHeads.LONGEST and head.is_plain and not asked_id:
            self._heads.put(key, known)

        self._go_on(command, known, now)

    def _go_on(self, command: Command, known: KnownHead | None, now: float) -> None:
        """Continue after the head, with the body or immediately with a response."""
        if command is not READ_BODY:
            self._respond_early(command)
            return

        assert known is not None
        self._exchange.know(known)
        self._received = 0
        if self._decoder is None and len(self._ahead) >= self._left:
            body = self._ahead[: self._left]
            self._ahead = self._ahead[self._left :]
            self._complete(body, now)
            return

        self._mode = _BODY
        self.deadline = now + self._plane.timeouts.body_s

    def _check_partial_head(self, data: bytes) -> bool:
        if len(data) > MAX_HEAD:
            self._refuse_head(*too_long(len(data.partition(b"\r\n")[0]) > MAX_URL))
        elif not (b"A" <= data[:1] <= b"Z" or data[:1] in b"\r\n"):
            self._refuse_head(400, "it does not begin with a method")
        elif BARE_LF.search(data.lstrip(b"\r\n")) is not None:
            # Its empty line would never be found.
            self._refuse_head(400, "a line of its head ends without a CR")
        elif not self._is_head_timed:
            self._is_head_timed = True
            self.deadline = self._plane.monotonic() + self._plane.timeouts.head_s
        return False

    def _read_body(self) -> None:
        data = self._ahead
        self._ahead = b""
        if self._is_reading_paused:
            self._resume_reading()

        size = len(data)
        if (decoder := self._decoder) is not None:
            try:
                data = decoder.feed(data)
            except BadChunks:
                self._refuse(error_response.incomplete_body())
                return

            if decoder.has_surplus:
                # A second request directly follows the chunks. The client will send it again.
                self._exchange.close_after_response()

            ended = decoder.is_complete
        else:
            if size > self._left:
                data, self._ahead = data[: self._left], data[self._left :]

            self._left -= len(data)
            ended = self._left == 0

        self._received += len(data)
        flow = self._exchange.flow
        assert flow is not None
        if ended and self._body is None and self._received <= flow.limit.size:
            self._complete(data, self._plane.monotonic())
            return

        if self._body is None:
            self._body = BytesIO()

        self._body.write(data)
        announced = 0 if self._left == _UNKNOWN else self._received + self._left
        if error := flow.receive(self._received, announced, self._body.getvalue):
            self._refuse(error)
        elif ended:
            self._complete(self._body.getvalue(), self._plane.monotonic())
        else:
            self.deadline += size / self._plane.timeouts.body_bytes_per_s

    def _complete(self, body: bytes, now: float) -> None:
        self._left = 0
        self._decoder = None
        self._body = None
        self._mode = _RESPONSE
        self.deadline = _NEVER
        flow = self._exchange.flow
        assert flow is not None
        if len(body) > WHOLE_BYTES and (error := flow.keep(len(body))) is not None:
            self._exchange.do(flow.refuse(error, now))
            return

        expander = flow.expander(body)
        if expander is None:
            self._read(flow, body, now)
        elif expander.read_on():
            self._expand_in_turns(flow, expander)
        else:
            self._expanded(flow, expander)

    def _expand_in_turns(self, flow: RequestFlow, expander: BodyExpander) -> None:
        def go_on() -> None:
            self._expanded(flow, expander)

        self._take_turns(flow, expander.read_on, go_on)

    def _expanded(self, flow: RequestFlow, expander: BodyExpander) -> None:
        """Read the body that was compressed."""
        body = expander.body
        now = self._plane.monotonic()
        if error := expander.error or flow.keep_expanded(len(body)):
            self._exchange.do(flow.refuse(error, now))
        else:
            self._read(flow, body, now)

    def _read(self, flow: RequestFlow, body: bytes, now: float) -> None:
        large = flow.large(body)
        if large is None:
            self._exchange.do(flow.body(body, now))
            return

        def go_on() -> None:
            self._exchange.do(flow.body(body, self._plane.monotonic(), large))

        self._take_turns(flow, large.read_on, go_on)

    def _take_turns(
        self, flow: RequestFlow, read_on: Callable[[], bool], go_on: Callable[[], None]
    ) -> None:
        """Call ``read_on`` once in each turn while it returns True, and then ``go_on``."""

        def read_on_for_flow() -> bool:
            return self._exchange.flow is flow and read_on()

        def go_on_with_flow() -> None:
            # The client has not disconnected and its key was not revoked.
            if self._exchange.flow is flow:
                self._mode = _RESPONSE
                go_on()

        self._mode = _READING
        self._plane.turns.take(read_on_for_flow, go_on_with_flow)

    def _skip(self) -> None:
        """Discard the body of a refused request."""
        data = self._ahead
        self._ahead = b""
        if self._is_reading_paused:
            self._resume_reading()
        if self._left == _UNKNOWN:
            return

        if len(data) < self._left:
            self._left -= len(data)
        elif self._mode == _LINGER:
            self.close()
        else:
            self._ahead = data[self._left :]
            self._left = 0
            self._mode = _HEAD
            self.deadline = self._plane.monotonic() + self._plane.timeouts.idle_s

    # Responding

    def _refuse(self, error: ErrorResponse) -> None:
        """Refuse a request while its body is arriving."""
        flow = self._exchange.flow
        assert flow is not None
        self._respond_early(flow.refuse(error, self._plane.monotonic()))

    def _refuse_head(self, status: int, detail: str) -> None:
        plane = self._plane
        now = self._plane.monotonic()
        flow = begin_flow(plane.router, plane.new_id(), now)
        self._exchange.begin(flow, keeps_alive=False)
        self._ahead = b""
        self._left = _UNKNOWN
        self._respond_early(flow.refuse(error_response.malformed_http(status, detail), now))

    def _respond_early(self, command: Command) -> None:
        """Respond before the body has arrived."""
        self._decoder = None
        self._body = None
        if not 0 <= self._left <= _SMALL_BODY:
            self._exchange.close_after_response()
        self._exchange.do(command)

    def _ended(self, now: float) -> None:
        """Handle the completion of a response."""
        plane = self._plane
        left = self._left
        if self._exchange.keeps_alive and not plane.is_stopping:
            self._mode = _SKIP if left else _HEAD
            self.deadline = now + (plane.timeouts.body_s if left else plane.timeouts.idle_s)
            if self._is_reading_paused:
                self._resume_reading()
            if self._ahead and not self._is_advancing:
                self._advance()
        elif left:
            # The client may send everything before it reads anything, so closing now would reset
            # the connection.
            self._mode = _LINGER
            self.deadline = now + plane.timeouts.linger_s
            if self._transport.can_write_eof():
                self._transport.write_eof()
        else:
            self.close()

    def _resume_reading(self) -> None:
        if len(self._ahead) <= _MAX_AHEAD:
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _hand_over(self, data: bytes) -> None:
        """Hand the connection over to the other plane, which serves apps and WebSockets."""
        self._mode = _CLOSED
        self.deadline = _NEVER
        self._plane.disconnected(self)
        handler = self._plane.handler()
        self._transport.set_protocol(handler)
        handler.connection_made(self._transport)
        handler.data_received(data)


def _nothing() -> None:
    """Do nothing, because the turn itself has done all the work."""
