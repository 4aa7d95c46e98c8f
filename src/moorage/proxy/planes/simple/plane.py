"""Data plane on aiohttp: a low-level server in front, a pooled client behind, a task per
request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from io import BytesIO

import structlog
from aiohttp import web
from multidict import CIMultiDict

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait
from moorage.common.config.settings import ProxySettings
from moorage.common.http.cors import Cors
from moorage.common.http.head import HeadGuard
from moorage.common.http.server import (
    ConnectionLimits,
    GuardedConnection,
    GuardedSite,
    Listener,
    find_problem,
    read_in_time,
)
from moorage.common.telemetry.log_context import LOG_SUBJECT
from moorage.proxy.apps import AppHandler, RequestContext
from moorage.proxy.control.table_watch import TableWatch
from moorage.proxy.core import error_response
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.commands import (
    Break,
    Command,
    ReadBody,
    Send,
    StartResponse,
    WaitForReplica,
)
from moorage.proxy.core.error_response import ErrorResponse, invalid_key
from moorage.proxy.core.flow import CLIENT_CLOSED_REQUEST, RequestFlow, resume_held
from moorage.proxy.core.flow_states import HELD
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.core.traced_flow import begin_flow
from moorage.proxy.core.websocket import Farewell
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.planes.failure_log import log_failure
from moorage.proxy.planes.log_subject import FlowSubject
from moorage.proxy.planes.simple.holding import hold
from moorage.proxy.planes.simple.relay import break_off, join, relay
from moorage.proxy.planes.simple.upstream import UpstreamClient, UpstreamFailed, UpstreamResponse
from moorage.proxy.planes.turns import Turns
from moorage.proxy.timeouts import Timeouts

log = structlog.get_logger("moorage.proxy")

_SERVER = "moorage"
_MAX_URL = 16_384
_MAX_HEADER = 32_768
_REVOKED = "its agent was revoked"


class _Admission:
    """Ends a request that may not continue. ``loses_agent``: its replica's agent was revoked, not
    its key."""

    def __init__(self) -> None:
        self.scope = asyncio.timeout(None)
        self.loses_agent = False
        self._has_ended = False

    def end(self, *, loses_agent: bool = False) -> None:
        if not self._has_ended:
            self._has_ended = True
            self.loses_agent = loses_agent
            self.scope.reschedule(0)


class SimplePlane:
    """A ``DataPlane`` on aiohttp. The protocol lists its guarantees."""

    def __init__(
        self,
        router: RequestRouter,
        settings: ProxySettings,
        clock: Clock,
        timeouts: Timeouts,
        *,
        tls: ssl.SSLContext | None = None,
        connector: Connector | None = None,
    ) -> None:
        self._router = router
        self._settings = settings
        self._clock = clock
        self._connector = connector or Connector()
        limits = ConnectionLimits(
            head_s=timeouts.head_s,
            idle_s=timeouts.idle_s,
            body_s=timeouts.body_s,
            body_bytes_per_s=timeouts.body_bytes_per_s,
            unread_s=timeouts.unread_s,
            linger_s=timeouts.linger_s,
            max_url=_MAX_URL,
            max_header=_MAX_HEADER,
        )
        self._limits = limits
        self._listener = Listener(
            partial(_malformed, router.cors), limits, tls, {"auto_decompress": False}
        )
        self._guard: HeadGuard | None = None
        self._upstream = UpstreamClient(settings, timeouts, self._connector)
        self._table_watch = TableWatch(clock, timeouts.table_update_s)
        self._apps = AppHandler(
            router,
            settings,
            clock=clock,
            table_watch=self._table_watch,
            limits=limits,
            connector=self._connector,
        )
        self._runner: web.ServerRunner | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._admitted: dict[RequestFlow, _Admission] = {}
        self._credentials = 0  # the revision of credentials that admits all of these
        self._aborts = False
        self._turns = Turns()
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(
        self, host: str, port: int, listening: socket.socket | None = None
    ) -> tuple[str, int]:
        # Behind another plane, that plane watches the tables.
        self._router.watch_tables(self._table_changed)
        runner = await self.open(self.guard_for(host))
        try:
            await GuardedSite(
                runner, host, port=port, listener=self._listener, listening=listening
            ).start()
        except OSError:
            await self.stop(0)
            raise

        bound = runner.addresses[0]
        return str(bound[0]), int(bound[1])

    def guard_for(self, host: str) -> HeadGuard:
        """The guard for a listener at ``host``."""
        settings = self._settings
        domain = (f".{settings.apps_domain}",) if settings.apps_domain else ()
        return HeadGuard(host, (*settings.allowed_hosts, *domain), setting="proxy.allowed_hosts")

    async def open(self, guard: HeadGuard) -> web.ServerRunner:
        """Prepare for connections without listening."""
        self._guard = guard
        await self._upstream.__aenter__()
        await self._apps.__aenter__()
        self._runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1
        )
        await self._runner.setup()
        return self._runner

    def connection(self) -> GuardedConnection:
        """A handler for a connection that another plane has accepted."""
        assert self._runner is not None
        assert self._runner.server is not None
        return GuardedConnection(
            self._runner.server,
            self._limits,
            self._listener.respond,
            loop=asyncio.get_running_loop(),
            **self._listener.options,
        )

    async def retire(self, grace_s: float) -> None:
        """Do nothing, because ``stop`` does all the work."""

    async def stop(self, grace_s: float) -> None:
        if self._runner is not None:
            for site in list(self._runner.sites):
                await site.stop()

            if self._runner.server is not None:
                self._runner.server.pre_shutdown()

            try:
                async with asyncio.timeout(grace_s):
                    await self._idle.wait()
            except TimeoutError:
                log.info("aborting requests that did not finish in time", count=len(self._running))
                self._aborts = True
                await cancel_and_wait(*self._running)

            await self._runner.cleanup()
            self._runner = None

        await self._apps.__aexit__()
        await self._upstream.__aexit__()

    def table_changed(self, table: IndexedTable) -> None:
        """Notify requests about a new table, and end those whose key has lost its rights or whose
        replica's agent was revoked."""
        self._table_watch.notify()
        self._apps.close_revoked(table)

        if self._credentials != self._router.credentials_revision:
            unix_now = self._clock.now().timestamp()
            self._credentials = self._router.credentials_revision
            for flow, admission in self._admitted.items():
                if not flow.may_go_on(table, unix_now):
                    admission.end()
                elif flow.is_at_revoked(table):
                    admission.end(loses_agent=True)

            self._connector.revoked(table.revoked_agents)

    def _table_changed(self, table: IndexedTable) -> None:
        self.table_changed(table)
        resume_held(self._router, self._clock.monotonic())

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self._idle.clear()
        context = RequestContext(request, self._clock)
        flow = begin_flow(self._router, context.request_id, context.started_at)
        LOG_SUBJECT.set(FlowSubject(flow))

        try:
            return await self._respond_while_admitted(context, flow)
        except ConnectionError:
            context.answer(CLIENT_CLOSED_REQUEST)
            raise
        except Exception as error:
            log.error(
                "request failed", request_id=context.request_id, error=repr(error), exc_info=error
            )
            if context.response_started:
                raise ConnectionResetError("the response cannot be completed") from error

            failure = error_response.internal_error(context.request_id)
            flow.refuse(failure, self._clock.monotonic())
            return await self._send(context, failure, flow)
        finally:
            self._running.discard(task)
            if not self._running:
                self._idle.set()

            now = self._clock.monotonic()
            if context.is_for_app:
                self._router.record_request("", context.status, now - context.started_at)
            else:
                flow.client_gone(now)  # unless it has ended

            LOG_SUBJECT.set(None)

    async def _respond_while_admitted(
        self, context: RequestContext, flow: RequestFlow
    ) -> web.StreamResponse:
        command: Command | None = None
        while True:
            admission = self._admitted[flow] = _Admission()
            try:
                async with admission.scope:
                    if command is None:
                        return await self._respond(context, flow)
                    return await self._follow(context, flow, command)
            except TimeoutError:
                if not admission.scope.expired():
                    raise
            finally:
                del self._admitted[flow]

            now = self._clock.monotonic()
            if not admission.loses_agent:
                if context.relayed is not None:
                    return await break_off(context, flow.key_revoked(context.tail, now))
                return await self._follow(context, flow, flow.refuse(invalid_key(given=True), now))

            if context.relayed is not None:
                return await break_off(context, _lost(context, flow, now))

            if flow.state == HELD:  # the replica has failed at the same moment
                command = flow.timer(now)
            else:
                log_failure(flow, Failure.CONNECT, _REVOKED)
                command = flow.upstream_failed(Failure.CONNECT, now)

    async def _respond(self, context: RequestContext, flow: RequestFlow) -> web.StreamResponse:
        request = context.request
        assert self._guard is not None
        if refusal := find_problem(self._guard, request):
            error = error_response.malformed_http(refusal.status, refusal.detail)
            return await self._follow(context, flow, flow.refuse(error, context.started_at))
        if (address := self._apps.match(request)) is not None:
            context.take_for_app()
            return await self._apps.handle(context, address)

        command = flow.head(
            request.method,
            request.path,
            fields=request.headers,
            size=request.content_length,
            now=context.started_at,
            unix_now=self._clock.now().timestamp(),
            query=request.rel_url.raw_query_string,
        )
        return await self._follow(context, flow, command)

    async def _follow(
        self, context: RequestContext, flow: RequestFlow, command: Command
    ) -> web.StreamResponse:
        """Follow the flow's commands until there is a response."""
        attempt: UpstreamResponse | None = None
        try:
            while True:
                match command:
                    case ReadBody():
                        command = await self._read_body(context, flow)
                    case WaitForReplica():
                        if command.comment:
                            await _comment(context, command.comment, flow)
                        command = await hold(flow, command, self._clock)
                    case Break(event):
                        assert context.open_stream is not None
                        await context.open_stream.write(event or b"")
                        await context.open_stream.write_eof()
                        return context.open_stream
                    case Send():
                        if attempt is not None:
                            attempt.response.close()

                        flow.sent(self._clock.monotonic())
                        outcome = await self._upstream.attempt(
                            command.target, flow, context.request, is_anew=command.is_anew
                        )
                        now = self._clock.monotonic()
                        if isinstance(outcome, UpstreamFailed):
                            attempt = None
                            command = flow.upstream_failed(outcome.failure, now)
                        else:
                            attempt = outcome
                            command = flow.upstream_head(
                                attempt.status,
                                attempt.content_type,
                                now=now,
                                begin=attempt.first_piece,
                                coding=attempt.coding,
                            )
                    case StartResponse():
                        assert attempt is not None
                        context.start(attempt.status)
                        return await self._pass_on(context, attempt, command, flow)
                    case LocalResponse() | ErrorResponse():
                        return await self._send(context, command, flow)
                    case _:
                        raise AssertionError(f"{command} does not belong here")
        finally:
            if attempt is not None:
                attempt.response.close()

    async def _pass_on(
        self,
        context: RequestContext,
        attempt: UpstreamResponse,
        start: StartResponse,
        flow: RequestFlow,
    ) -> web.StreamResponse:
        if attempt.status == 101:
            cancelled = partial(self._cancelled, flow)
            return await join(
                context, attempt, start=start, flow=flow, clock=self._clock, cancelled=cancelled
            )
        return await relay(context, attempt, start=start, flow=flow, clock=self._clock)

    def _cancelled(self, flow: RequestFlow) -> Farewell:
        """The reason for cancelling a WebSocket whose client is still connected."""
        if self._aborts:
            return Farewell.DRAIN
        return Farewell.REPLICA_LOST if self._admitted[flow].loses_agent else Farewell.KEY_REVOKED

    async def _read_body(self, context: RequestContext, flow: RequestFlow) -> Command:
        announced = context.request.content_length or 0
        received = BytesIO()
        size = 0
        await context.send_continue()
        error: ErrorResponse | None = None
        try:
            async for piece in read_in_time(
                context.request.content, self._limits, waiting=self._clock.monotonic
            ):
                size += len(piece)
                received.write(piece)
                if error := flow.receive(size, announced, received.getvalue):
                    break
        except TimeoutError:
            error = error_response.body_timeout(self._limits.body_s)
        except web.RequestPayloadError:
            error = error_response.incomplete_body()

        if error is not None:
            return flow.refuse(error, self._clock.monotonic())

        body = received.getvalue()
        if (expander := flow.expander(body)) is not None:
            await self._turns.finish(expander.read_on)
            body = expander.body
            error = expander.error or flow.keep_expanded(len(body))
            if error is not None:
                return flow.refuse(error, self._clock.monotonic())

        if (large := flow.large(body)) is not None:
            await self._turns.finish(large.read_on)

        return flow.body(body, self._clock.monotonic(), large)

    async def _send(
        self,
        context: RequestContext,
        response: LocalResponse | ErrorResponse,
        flow: RequestFlow,
    ) -> web.Response:
        context.answer(response.status)
        if isinstance(response, LocalResponse):
            answer = _json_response(response.status, response.body, context.request_id)
            answer.headers.extend(flow.cors)
            return answer

        error = _json_response(
            response.status, response.body(anthropic=flow.is_anthropic), context.request_id
        )
        error.headers.update(response.headers)
        error.headers.extend(flow.cors)
        if response.close or context.request.headers.get("Upgrade"):
            # frames, not a request, may follow the offer of a WebSocket
            error.force_close()

        if context.expects_continue:
            # The client may or may not send its body now, so the next bytes are ambiguous. Close
            # immediately.
            error.force_close()
            await error.prepare(context.request)
            await error.write_eof()
            context.request.protocol.force_close()

        return error


async def _comment(context: RequestContext, comment: bytes, flow: RequestFlow) -> None:
    """Send a comment. The first one starts an event stream."""
    stream = context.open_stream
    if stream is None:
        head = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        head |= {"X-Accel-Buffering": "no", "Server": _SERVER, "x-request-id": context.request_id}
        stream = web.StreamResponse(headers=CIMultiDict([*head.items(), *flow.cors]))
        await stream.prepare(context.request)
        context.start_stream(stream)

    await stream.write(comment)


def _lost(context: RequestContext, flow: RequestFlow, now: float) -> Break:
    """Break off a response because the agent was revoked."""
    if flow.target is None:
        return Break(None)  # a WebSocket, which has already received its farewell
    log_failure(flow, Failure.INTERRUPTED, _REVOKED)
    return flow.upstream_lost(Failure.INTERRUPTED, context.tail, now)


def _malformed(cors: Cors, status: int, detail: str) -> web.Response:
    body = error_response.malformed_http(status, detail).body()
    response = _json_response(status, body, None)
    response.headers.extend(cors.unread)
    return response


def _json_response(status: int, body: bytes, request_id: str | None) -> web.Response:
    if status == 204:
        response = web.Response(status=204)
    else:
        response = web.Response(status=status, body=body, content_type="application/json")

    response.headers["Server"] = _SERVER
    if request_id is not None:
        response.headers["x-request-id"] = request_id
    return response
