"""Request flow: everything that happens to one request, as events in and commands out. Pure.

A data plane reports what happens on its sockets, and does what the returned command says. It moves
body bytes itself: the flow sees only a response's head and its end.

    head ─ ReadBody ─ body ─┬─ Send ─┬─ upstream_head ─┬─ Start ─┬─ upstream_end
                            │   ▲    │                 │         └─ upstream_lost ─ Break
                            │   └────┴─ upstream_failed, or a status that means "elsewhere"
                            └─ Hold ─ routes_changed or timer ─ Send

``Send`` goes to a replica of the model, or to one of its fallbacks (``fallback``). If the model is
kept running but none of its replicas can be reached, the request is also held, because another
replica is on its way. It is held, too, while no engine has room for it (``engine_room``).

In all other cases, the final command is a response from the proxy itself: ``LocalResponse`` or
``ErrorResponse``. If the client disconnects, ``client_gone`` ends the request in any state.
In-flight counts, the reservation and the metrics are settled exactly once, however the request
ends. ``flow_states`` defines the states behind this diagram and the events allowed in each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from moorage.common.http.cors import Pairs
from moorage.common.link.messages import KeyGrant, Target
from moorage.common.model.ids import KernelId
from moorage.proxy.core import error_response, stream_end
from moorage.proxy.core.admission import BodyRequired, LocalResponse, large_body, may_go_on
from moorage.proxy.core.apis import RESPONSES, speaks_anthropic, split_project
from moorage.proxy.core.body_expander import BodyExpander
from moorage.proxy.core.body_limit import BodyLimit
from moorage.proxy.core.commands import (
    READ_BODY,
    Break,
    Command,
    Send,
    StartResponse,
    WaitForReplica,
)
from moorage.proxy.core.engine_room import ends_without_room, tells_of_no_room
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.fallback import FALLS_BACK, is_refused
from moorage.proxy.core.flow_parts import FailedAttempts, ForwardedRequest, RequestWait
from moorage.proxy.core.flow_states import (
    ENDED,
    HELD,
    READING,
    SENT,
    STREAMING,
    FlowState,
    IllegalEvent,
)
from moorage.proxy.core.headers import is_event_stream
from moorage.proxy.core.limits.limiter import Ask, Observer, RequestReservation
from moorage.proxy.core.permit import Permit
from moorage.proxy.core.priority import DEFAULT, with_priority
from moorage.proxy.core.request_body import WHOLE_BYTES, LargeReader
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.retry import (
    BUSY,
    Failure,
    is_error_event,
    should_retry,
    tells_of_death,
)
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.core.stored_response import StoredResponse

PROGRESS_S = 5.0
"""Time between two comments to a waiting client."""
UNREACHABLE_S = 5.0
"""Time after which a held request is sent again to the replicas that could not be reached."""
FULL_S = 0.5
"""Time until the next check whether a replica has room, if no request ends before then."""
MAX_REFUSALS = 8
"""Refusals for lack of room after which the client gets the engine's own error."""
CLIENT_CLOSED_REQUEST = 499
"""Status in logs and metrics for a client that disconnected first (nginx's code)."""


class RequestFlow:
    """One request. Times named ``now`` are monotonic seconds, ``unix_now`` is in seconds since the
    epoch.

    ``state``: one of ``flow_states``. ``resume``: called with the command that follows from a route
    change while the request is held. ``admitted``: the decision about the head, which a plane may
    reuse for identical heads. ``cors``: headers of the answer, whatever it is, for browsers.
    ``is_anthropic``: whether errors are in Anthropic's format. ``path``, ``payload``: the path and
    body to send to the replica. ``model``: empty until it is known. ``target``: the replica that
    has the request. ``traceparent``: the header for the replica; if empty, the client's own is
    kept.
    """

    __slots__ = (
        "_attempts",
        "_clock_offset_s",
        "_has_begun",
        "_kept_bytes",
        "_limit",
        "_request",
        "_reservation",
        "_router",
        "_sent_at",
        "_started_at",
        "_status",
        "_wait",
        "_waited_s",
        "_waits_since",
        "admitted",
        "cors",
        "is_anthropic",
        "model",
        "path",
        "payload",
        "request_id",
        "resume",
        "state",
        "target",
        "traceparent",
    )

    def __init__(self, router: RequestRouter, request_id: str, now: float) -> None:
        self._router = router
        self.request_id = request_id
        self.state: FlowState = READING
        self._started_at = now

        # from its head
        self.admitted: BodyRequired | None = None
        self.cors: Pairs = router.cors.unread
        self.is_anthropic = False
        self.traceparent = ""
        self._clock_offset_s = 0.0  # the wall clock's time when ``now`` is 0, in unix seconds

        # from its body
        self.model = ""
        self.path = ""
        self._request: ForwardedRequest | None = None
        self._reservation: RequestReservation | None = None
        self._kept_bytes = 0  # of a large body, in the memory for bodies
        self._has_begun = False  # to read a large body
        self._limit: BodyLimit | None = None  # of the endpoint that the body's beginning names

        # time that the proxy itself waited, for the body and for replicas
        self._waits_since = now
        self._waited_s = 0.0
        self._wait: RequestWait | None = None  # set once the request is held
        self.resume: Callable[[Command], None] | None = None

        # at a replica
        self.target: Target | None = None
        self.payload = b""
        self._sent_at = now
        self._attempts: FailedAttempts | None = None  # set once one has failed
        self._status = 0

    @property
    def identity(self) -> KeyGrant | None:
        """The caller's key; None if no key is required or the key was refused."""
        return self.admitted.key if self.admitted is not None else None

    @property
    def _key(self) -> str:
        """The caller's identifier; empty if no key is required."""
        admitted = self.admitted
        return "" if admitted is None or admitted.key is None else admitted.key.sha256

    def may_go_on(self, table: IndexedTable, unix_now: float) -> bool:
        """Whether the new credentials also admit the request."""
        admitted = self.admitted
        if admitted is None or admitted.key is None:
            return True

        key = table.find_key(admitted.key.sha256, unix_now)
        if key is None:
            return False
        if key is not admitted.key:
            admitted = admitted.with_key(key)
            self.admitted = admitted

        request = self._request
        return may_go_on(admitted, "" if request is None else request.route_name, table)

    def is_at_revoked(self, table: IndexedTable) -> bool:
        """Whether the agent of the replica that has the request was revoked."""
        return self.target is not None and self.target.peer_id in table.revoked_agents

    def resume_by(self, resume: Callable[[Command], None]) -> None:
        """While the request is held, call ``resume`` with the command that follows from a route
        change."""
        self.resume = resume

    # Reading: until the request is complete

    def head(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str],
        size: int | None,
        *,
        now: float,
        unix_now: float,
        query: str = "",
    ) -> Command:
        """The head has arrived. ``fields``: its headers, case-insensitive. ``size``: the announced
        body length, None if unknown. ``query``: the unparsed query string."""
        if self.state != READING:
            raise IllegalEvent("head", self.state)

        self._clock_offset_s = unix_now - now
        self.is_anthropic = speaks_anthropic(split_project(path)[1], fields)
        if cors := self._router.cors:
            if preflight := cors.preflight(method, fields):
                self.cors = preflight
                return self._answer(LocalResponse(b"", 204), now)

            self.cors = cors.headers(fields.get("Origin"))

        outcome = self._router.admit_head(
            method, path, headers=fields, size=size, unix_now=unix_now, now=now, query=query
        )
        if isinstance(outcome, BodyRequired):
            outcome.cors = self.cors
            self.admitted = outcome
            self._waits_since = now
            return READ_BODY

        return self._answer(outcome, now)

    def head_again(self, admitted: BodyRequired, now: float, unix_now: float) -> Command:
        """A head has arrived that is identical to an earlier one. ``admitted``: the decision about
        that one, which was made with the credentials still in use."""
        if self.state != READING:
            raise IllegalEvent("head_again", self.state)

        self._clock_offset_s = unix_now - now
        self.cors = admitted.cors
        self.is_anthropic = admitted.is_anthropic
        if outcome := self._router.admit_again(admitted, unix_now, now):
            return self._answer(outcome, now)
        self.admitted = admitted
        self._waits_since = now
        return READ_BODY

    def refuse(self, error: ErrorResponse, now: float) -> Command:
        """The request cannot be read, or cannot be served because of an internal error in the
        proxy. No part of a replica's response has reached the client."""
        if self.state == STREAMING:
            raise IllegalEvent("refuse", self.state)
        return self._answer(error, now)

    @property
    def limit(self) -> BodyLimit:
        """The limit of the body, as far as it is known by now."""
        admitted = self.admitted
        assert admitted is not None
        return admitted.limit if self._limit is None else self._limit

    def receive(
        self, size: int, announced: int, begin: Callable[[], bytes]
    ) -> ErrorResponse | None:
        """``size`` bytes of the body have arrived by now. ``announced``: its whole size, 0 if
        unknown. ``begin``: returns what has arrived, and is called once, because the beginning of a
        large body may name an endpoint with a limit of its own. Returns the error for a body that
        is too large, or for which the proxy has no room."""
        if size > WHOLE_BYTES and not self._has_begun:
            admitted = self.admitted
            assert admitted is not None
            self._has_begun = True
            self._limit = self._router.limit_by_beginning(admitted, begin)

        limit = self.limit
        if size > limit.size or announced > limit.size:
            return error_response.body_too_large(limit)

        return self.keep(size) if size > WHOLE_BYTES else None

    def keep(self, size: int) -> ErrorResponse | None:
        """Keep a large body, of which ``size`` bytes have arrived by now, until the response
        starts. Returns the error if the proxy has no room for it."""
        bodies = self._router.bodies
        if not bodies.take(size - self._kept_bytes):
            return error_response.no_body_memory()

        self._kept_bytes = size
        return None

    def _forget_body(self) -> None:
        if self._kept_bytes:
            self._router.bodies.give_back(self._kept_bytes)
            self._kept_bytes = 0

    def expander(self, body: bytes) -> BodyExpander | None:
        """Return an expander for a complete body that is compressed. None means that it is not."""
        admitted = self.admitted
        assert admitted is not None
        if not admitted.coding or not body:
            return None
        return BodyExpander(body, admitted.coding, self.limit, self.keep_expanded)

    def keep_expanded(self, size: int) -> ErrorResponse | None:
        """Keep ``size`` bytes instead of the body that arrived."""
        return self.keep(size if size > WHOLE_BYTES else 0)

    def large(self, body: bytes) -> LargeReader | None:
        """Return a reader for a complete body that must be read in slices before ``body`` is
        called. None means that slices are not needed."""
        assert self.admitted is not None
        return large_body(self.admitted, body)

    def body(self, body: bytes, now: float, large: LargeReader | None = None) -> Command:
        """The body is complete. A large one has already been read by ``large``."""
        if self.state != READING:
            raise IllegalEvent("body", self.state)

        admitted = self.admitted
        assert admitted is not None
        self._waited_s += now - self._waits_since
        forward = self._router.admit_body(admitted, body, now, large)
        if isinstance(forward, ErrorResponse):
            return self._answer(forward, now)

        if (renamed := forward.renamed) is not None:
            body = renamed

        permit = forward.permit
        stored: StoredResponse | None = None
        if forward.path.startswith(RESPONSES):
            stored = StoredResponse(admitted, forward)

        ask = Ask(
            admitted.key,
            permit,
            path=forward.path,
            prompt_bytes=len(body) if large is None else large.prompt_bytes,
            members=forward.members,
            request_id=self.request_id,
            repeats=stored is not None and stored.repeats,
        )
        granted = self._router.reserve(ask, now)
        if isinstance(granted, ErrorResponse):
            return self._answer(granted, now)

        self._reservation = granted
        self.path = forward.path
        self.model = permit.endpoint
        request = ForwardedRequest(admitted, forward, body, stored)
        request.measure(ask.prompt_bytes)
        self._request = request
        if request.home is None:
            target = self._router.pick_of(permit.route, (), now, request.affinity)
        else:
            target = self._pick(request, now)

        return self._send(target, now) if target is not None else self._hold(now)

    # Held: while no replica is ready or reachable

    def _hold(self, now: float) -> Command:
        router = self._router
        request = self._request
        assert request is not None
        self._release()
        wait = self._wait
        if wait is None:
            wait = RequestWait(now)
            self._wait = wait

        hold_s = router.hold_s(self.model)
        chain = request.chain
        if chain is not None:
            wait.allow_fallback(0.0 if self._avoided() else min(chain.after_s, hold_s))
            if wait.fallback_at <= now and (command := self._fall_back(now)) is not None:
                return command

        wait.extend(hold_s)
        if now >= wait.until:
            return self._answer(self._no_replica(), now)

        priority = DEFAULT if self._reservation is None else self._reservation.priority
        if not router.waiting.add(self, priority, len(request.body)):
            error = error_response.too_many_held(
                self.model, router.expected_s(self.model, now + self._clock_offset_s)
            )
            return self._fall_back(now) or self._answer(error, now)

        self.state = HELD
        self._waits_since = now
        return self._hold_on(now)

    def _hold_on(self, now: float) -> WaitForReplica:
        """The plane's next command: wait for a replica."""
        wait = self._wait
        request = self._request
        assert wait is not None
        assert request is not None
        until = min(wait.until, now + UNREACHABLE_S) if self._avoided() else wait.until
        if self._router.is_full(self.model):
            until = min(until, now + FULL_S)
        if now < wait.fallback_at:
            until = min(until, wait.fallback_at)
        if not request.shows_progress:
            return WaitForReplica(until)

        wait.open_stream()
        expected_s = self._router.expected_s(
            self.model, now + self._clock_offset_s, now - self._waits_since
        )
        eta = f" eta={expected_s}s" if expected_s else ""
        comment = f": queued position={self._router.waiting.position(self)}{eta}\n\n"

        return WaitForReplica(min(until, now + PROGRESS_S), comment.encode())

    def routes_changed(self, now: float) -> Command | None:
        """None means that the request keeps waiting as before."""
        if self.state != HELD:
            raise IllegalEvent("routes_changed", self.state)

        router = self._router
        wait = self._wait
        request = self._request
        assert wait is not None
        assert request is not None
        target = self._pick(request, now)
        error = router.check_model(request.route_name) if target is None else None
        if target is None:  # the model may have started or stopped loading
            if now >= wait.fallback_at and (command := self._fall_back(now)) is not None:
                return command

            has_changed = wait.extend(router.hold_s(self.model))
            waits = error_response.may_resolve(error)
            if error is None:
                waits = bool(self._avoided()) or router.is_full(self.model)
            if waits and now < wait.until:
                return self._hold_on(now) if has_changed else None

        self._leave_queue(now)
        if target is None:
            return self._answer(error or self._no_replica(), now)

        if self._attempts is not None:
            self._attempts.keep_deaths()

        return self._send(target, now)

    def timer(self, now: float) -> Command:
        """The wait of a ``WaitForReplica`` has timed out."""
        wait = self._wait
        if self.state != HELD or wait is None:
            raise IllegalEvent("timer", self.state)
        if now < wait.until and self._attempts is not None:
            self._attempts.try_all_again()
        return self.routes_changed(now) or self._hold_on(now)

    def _leave_queue(self, now: float) -> None:
        if self._router.waiting.remove(self):
            self._waited_s += now - self._waits_since

    def _fall_back(self, now: float) -> Command | None:
        """Send the request to the next fallback that can serve it; None if there is none."""
        request = self._request
        router = self._router
        refusal = None
        assert request is not None
        chain = request.chain
        while chain is not None and (hop := router.next_fallback(chain, now)) is not None:
            self._leave_queue(now)
            self._release()
            forward = chain.forward
            route = hop.route
            if route.name != request.route_name:
                self._settle(503, now)
                permit = Permit(route)
                ask = Ask(
                    self.identity,
                    permit,
                    path=forward.path,
                    prompt_bytes=request.prompt_bytes,
                    members=forward.members,
                    request_id=self.request_id,
                )
                granted = router.reserve(ask, now)
                if isinstance(granted, ErrorResponse):
                    refusal = granted
                    continue

                self._reservation = granted
                self.model = route.endpoint

            router.metrics.record_fallback(forward.model, hop.name)
            self.path = hop.path
            request.fall_back(hop)
            if self._attempts is not None:
                # A request that may have killed a replica must still not be sent to one replica
                # after another.
                self._attempts.try_all_again()
                self._attempts.keep_deaths()

            return self._send(hop.target, now)

        return None if refusal is None else self._answer(refusal, now)

    def _no_replica(self) -> ErrorResponse:
        if self._avoided():
            return self._error(Failure.CONNECT)

        assert self._request is not None
        name = self._request.route_name
        if self._router.is_full(self.model):
            return error_response.no_room(name)
        return error_response.model_loading(name)

    # Sent: at a replica

    def sent(self, now: float) -> None:
        """The request is on its way; time from now on counts as the replica's. Called for each
        ``Send``."""
        if self.state != SENT:
            raise IllegalEvent("sent", self.state)
        self._sent_at = now

    def upstream_failed(self, failure: Failure, now: float) -> Command:
        """The replica could not be reached, or disconnected before the first byte of a body."""
        if self.state != SENT:
            raise IllegalEvent("upstream_failed", self.state)

        request = self._request
        assert request is not None
        is_spent = failure is not Failure.CONNECT and self._has_killed()
        if (target := self._next_target(failure, now)) is not None:
            return self._send(target, now)
        if failure in FALLS_BACK and (command := self._fall_back(now)) is not None:
            return command

        waits = failure in (Failure.CONNECT, Failure.ENGINE_DEAD) and not is_spent
        if waits and self._may_wait(request) and self._router.can_hold(self.model):
            return self._hold(now)

        return self._answer(self._error(failure), now)

    def _may_wait(self, request: ForwardedRequest) -> bool:
        """Whether any replica of the requested model can serve the request."""
        return request.home is None and not request.served_by

    def upstream_head(
        self, status: int, content_type: str, now: float, begin: bytes = b"", *, coding: str = ""
    ) -> Command:
        """The replica has responded. ``begin``: the first piece of the body, empty if the body is.
        ``coding``: its Content-Encoding."""
        if self.state != SENT:
            raise IllegalEvent("upstream_head", self.state)

        target = self.target
        router = self._router
        assert target is not None
        is_error = status >= 400 or is_error_event(begin)
        if is_error and tells_of_death(status, begin):
            return self.upstream_failed(Failure.ENGINE_DEAD, now)

        if is_error and not target.tls and tells_of_no_room(status, begin):
            if (command := self._seek_room(target, now)) is not None:
                return command
        else:
            router.record_status(target, self._key, status, now, is_error=is_error)

        if status == 401:
            return self.upstream_failed(Failure.KEY_REJECTED, now)
        if target.tls and is_refused(status):
            return self.upstream_failed(Failure.REFUSED, now)

        if status in BUSY:
            if (elsewhere := self._next_target(Failure.BUSY, now)) is not None:
                return self._send(elsewhere, now)
            if (command := self._fall_back(now)) is not None:
                return command

        return self._start(target, status, content_type=content_type, coding=coding, now=now)

    def _start(
        self, target: Target, status: int, content_type: str, coding: str, *, now: float
    ) -> StartResponse:
        """Forward the replica's response."""
        router = self._router
        request = self._request
        assert request is not None
        self.state = STREAMING
        self._status = status
        self.payload = b""
        request.release()
        self._forget_body()
        overhead_s = self._sent_at - self._started_at - self._waited_s
        router.metrics.record_first_byte(now - self._started_at, overhead_s)
        observe: Observer | None = None
        more: Sequence[tuple[str, str]] = ()
        if (reservation := self._reservation) is not None:
            observe = reservation.observe(status, content_type, coding)
            more = reservation.headers

        stored = request.stored
        if stored is not None and stored.reads_id and status == 200 and not target.tls:
            home = (self.model, target.kernel_id)
            is_stream = is_event_stream(content_type)
            observe = stored.reader(router.homes, home, observe, now, is_stream=is_stream)

        if request.served_by:
            more = (*more, ("x-moorage-model", request.served_by))
        wait = self._wait
        if (
            wait is not None
            and wait.is_stream_open
            and not (status == 200 and is_event_stream(content_type))
        ):
            observe = stream_end.as_event(observe)

        return StartResponse(overhead_s, more, observe)

    def _seek_room(self, target: Target, now: float) -> Command | None:
        """Find another place for a request for which the engine has no room. No part of its answer
        has reached the client. None if there is no other place and the request has waited long
        enough."""
        request = self._request
        assert request is not None
        self._router.record_no_room(target, now)
        elsewhere = self._next_target(Failure.NO_ROOM, now)
        attempts = self._attempts
        assert attempts is not None
        attempts.add_refusal()
        if elsewhere is not None:
            return self._send(elsewhere, now)
        if (command := self._fall_back(now)) is not None:
            return command

        since = now if self._wait is None else self._wait.since
        may_wait = self._may_wait(request) and attempts.refusals < MAX_REFUSALS
        if not may_wait or now >= since + self._router.hold_s(self.model):
            return None

        attempts.try_all_again()
        return self._hold(now)

    # Streaming: while the response is relayed

    def upstream_end(self, now: float, tail: bytes | None = None) -> None:
        """The complete response was relayed. ``tail``: as for ``upstream_lost``."""
        if self.state != STREAMING:
            raise IllegalEvent("upstream_end", self.state)

        if tail and self.target is not None and ends_without_room(tail):
            self._router.record_no_room(self.target, now)
        self._end(self._status, now)

    def upstream_lost(self, failure: Failure, tail: bytes | None, now: float) -> Break:
        """The replica disconnected in the middle of the response.

        ``tail``: the last bytes of an event stream, at least ``stream_end.TAIL_BYTES`` if there
        were that many; None if the response is not an event stream, or no event can be added to it.
        """
        if self.state != STREAMING:
            raise IllegalEvent("upstream_lost", self.state)

        assert self.target is not None
        self._router.record_failure(
            self.model, self.target, key=self._key, failure=failure, now=now
        )
        self._end(self._status, now)

        return Break(
            None if tail is None else stream_end.closing_event(tail, failure, self.is_anthropic)
        )

    def key_revoked(self, tail: bytes | None, now: float) -> Break:
        """The key was revoked or lost its rights in the middle of the response. Close the
        connection to the replica.

        ``tail``: as for ``upstream_lost``."""
        if self.state not in (STREAMING, ENDED):
            raise IllegalEvent("key_revoked", self.state)

        self._end(self._status, now)
        return Break(
            None
            if tail is None
            else stream_end.closing_event(tail, Failure.KEY_REVOKED, self.is_anthropic)
        )

    def client_gone(self, now: float) -> None:
        """The client has disconnected. Close the connection to the replica."""
        self._end(CLIENT_CLOSED_REQUEST, now)

    # Its replicas

    def _pick(self, request: ForwardedRequest, now: float) -> Target | None:
        avoided = self._avoided()
        if request.home is not None:
            return self._router.target_at(request.home, avoided)
        return self._router.pick_target(request.route_name, avoided, now, request.affinity)

    def _send(self, target: Target, now: float) -> Send:
        request = self._request
        assert request is not None
        if self.target is not None:
            self._release()

        self.state = SENT
        self.target = target
        self._sent_at = now
        self.payload = request.body
        if (held := self._reservation) is not None and held.prioritizes and target.accepts_priority:
            self.payload = with_priority(request.body, held.priority)
        elif request.stored is not None:
            self.payload = request.stored.named(request.body, target, self._router.randrange)

        self._router.begin_at(self.model, target.kernel_id)
        attempts = self._attempts
        return Send(target, attempts is not None and attempts.has_killed)

    def _next_target(self, failure: Failure, now: float) -> Target | None:
        """The next replica for the request after a failure, if there is one."""
        target = self.target
        request = self._request
        attempts = self._attempts
        assert target is not None
        assert request is not None
        self._router.record_failure(self.model, target, key=self._key, failure=failure, now=now)
        if attempts is None:
            attempts = FailedAttempts()
            self._attempts = attempts

        elapsed_s = now - self._started_at - self._waited_s
        retry = should_retry(failure, attempts.failures, elapsed_s)
        attempts.add(target.kernel_id, failure)
        if not retry:
            return None

        elsewhere = None if target.tls else self._pick(request, now)
        if elsewhere is None and failure is Failure.DISCONNECT:
            # This is the only replica. Most likely it had just closed an idle connection, so try it
            # again.
            return target

        return elsewhere

    def _avoided(self) -> Collection[KernelId]:
        """The replicas to avoid because they have failed."""
        return () if self._attempts is None else self._attempts.replicas

    def _has_killed(self) -> bool:
        """Whether the request killed a replica, or may have."""
        return self._attempts is not None and self._attempts.has_killed

    def _error(self, failure: Failure) -> ErrorResponse:
        idle_s = self._router.settings.read_idle_timeout_s
        return error_response.upstream_failure(failure, idle_s, len(self._avoided()))

    # Ended

    def _answer(self, response: LocalResponse | ErrorResponse, now: float) -> Command:
        self._end(response.status, now)
        if self._is_stream_open() and isinstance(response, ErrorResponse):
            return Break(
                stream_end.error_event(
                    response.body(anthropic=self.is_anthropic), self.is_anthropic
                )
            )
        return response

    def _is_stream_open(self) -> bool:
        """Whether the client has received a comment, so that its response must be an event
        stream."""
        return self._wait is not None and self._wait.is_stream_open

    def _release(self) -> None:
        if (target := self.target) is not None:
            self.target = None
            self._router.end_at(self.model, target.kernel_id)

    def _end(self, status: int, now: float) -> None:
        if self.state == ENDED:
            return
        if self.state == HELD:
            self._router.waiting.remove(self)

        self.state = ENDED
        self._forget_body()
        target = self.target
        self._release()
        self._settle(status, now, "" if target is None else target.session_id)
        self._router.record_request(self.model, status, now - self._started_at)
        if self._router.room.bounds and self._router.waiting:
            _resume_next(self._router, self.model, now)

    def _settle(self, status: int, now: float, session_id: str = "") -> None:
        if (reservation := self._reservation) is not None:
            self._reservation = None
            reservation.settle(status, now, session_id)


def resume_held(router: RequestRouter, now: float) -> None:
    """Resume as many of the requests waiting for a replica as possible, in order for each model."""
    for flow in router.waiting.in_order():
        assert isinstance(flow, RequestFlow)
        if flow not in router.waiting:
            continue  # it was resumed when another one ended
        command = flow.routes_changed(now)
        if command is not None and flow.resume is not None:
            flow.resume(command)


def _resume_next(router: RequestRouter, model: str, now: float) -> None:
    """A request for the model has ended, so resume the requests that wait for capacity, in
    order."""
    for flow in router.waiting.of_model(model):
        assert isinstance(flow, RequestFlow)
        if flow not in router.waiting:
            continue

        command = flow.routes_changed(now)
        if command is None:
            return
        if flow.resume is not None:
            flow.resume(command)
