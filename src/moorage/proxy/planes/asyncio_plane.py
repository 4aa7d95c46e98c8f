"""Data plane on aiohttp: a low-level HTTP server in front, a pooled HTTP client behind."""

from __future__ import annotations

import asyncio
import ssl

import structlog
from aiohttp import web

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait
from moorage.common.config.settings import ProxySettings
from moorage.common.http.head import HeadGuard
from moorage.common.http.server import GuardedSite, Limits, Listener, find_problem
from moorage.proxy.apps import AppHandler
from moorage.proxy.control.table_watch import TableWatch
from moorage.proxy.core import error_response, headers
from moorage.proxy.core.admission import LocalResponse
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.request_router import Assignment, RequestRouter
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.planes.relay import relay
from moorage.proxy.planes.request_context import CLIENT_CLOSED_REQUEST, RequestContext
from moorage.proxy.planes.upstream import UpstreamClient, UpstreamRequest, UpstreamResponse
from moorage.proxy.timeouts import Timeouts

log = structlog.get_logger("moorage.proxy")

_SERVER = "moorage"
_MAX_URL = 16_384
_MAX_HEADER = 32_768


class AsyncioPlane:
    """``DataPlane`` on aiohttp. The protocol lists its guarantees."""

    def __init__(
        self,
        router: RequestRouter,
        settings: ProxySettings,
        clock: Clock,
        timeouts: Timeouts,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._router, self._settings, self._clock, self._timeouts = router, settings, clock, timeouts
        limits = Limits(
            head_s=timeouts.head_s,
            idle_s=timeouts.idle_s,
            body_s=timeouts.body_s,
            unread_s=timeouts.unread_s,
            linger_s=timeouts.linger_s,
            max_url=_MAX_URL,
            max_header=_MAX_HEADER,
        )
        self._listener = Listener(_malformed, limits, tls, {"auto_decompress": False})
        self._guard: HeadGuard | None = None
        self._upstream = UpstreamClient(router, settings, clock)
        self._table_watch = TableWatch(clock, timeouts.table_update_s)
        self._apps = AppHandler(router, settings, clock, self._table_watch, limits)
        router.on_table = self._table_changed
        self._runner: web.ServerRunner | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        await self._upstream.__aenter__()
        await self._apps.__aenter__()
        settings = self._settings
        domain = (f".{settings.apps_domain}",) if settings.apps_domain else ()
        self._guard = HeadGuard(host, (*settings.allowed_hosts, *domain), setting="proxy.allowed_hosts")
        server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = GuardedSite(self._runner, host, port, self._listener)
        try:
            await site.start()
        except OSError:
            await self.stop(0)
            raise
        bound = self._runner.addresses[0]
        return str(bound[0]), int(bound[1])

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
                await cancel_and_wait(*self._running)
            await self._runner.cleanup()
            self._runner = None
        await self._apps.__aexit__()
        await self._upstream.__aexit__()

    def _table_changed(self, table: IndexedTable) -> None:
        self._table_watch.notify()
        self._apps.close_revoked(table)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self._idle.clear()
        context = RequestContext(request, self._clock)
        try:
            return await self._respond(context)
        except ConnectionError:
            context.status = CLIENT_CLOSED_REQUEST
            raise
        except Exception as error:
            log.error("request failed", request_id=context.request_id, error=repr(error), exc_info=error)
            if context.response_started:
                raise ConnectionResetError("the response cannot be completed") from error
            return await self._send_error(context, error_response.internal_error(context.request_id))
        finally:
            self._running.discard(task)
            if not self._running:
                self._idle.set()
            duration_s = self._clock.monotonic() - context.started_at
            self._router.record_request(context.model, context.status, duration_s)

    async def _respond(self, context: RequestContext) -> web.StreamResponse:
        request, router = context.request, self._router
        assert self._guard is not None
        if refusal := find_problem(self._guard, request):
            return await self._send_error(
                context, error_response.malformed_http(refusal.status, refusal.detail)
            )
        if (address := self._apps.match(request)) is not None:
            return await self._apps.handle(context, address)
        unix_now = self._clock.now().timestamp()
        head = router.admit_head(
            request.method,
            request.path,
            request.headers,
            request.content_length,
            unix_now,
            context.started_at,
        )
        if isinstance(head, LocalResponse):
            context.status = 200
            return _json_response(200, head.body, context.request_id)
        if isinstance(head, ErrorResponse):
            return await self._send_error(context, head)
        wait_began_at = self._clock.monotonic()
        body = await self._read_body(context)
        context.waited_s = self._clock.monotonic() - wait_began_at
        if isinstance(body, ErrorResponse):
            return await self._send_error(context, body)
        forward = router.admit_body(head, body)
        if isinstance(forward, ErrorResponse):
            return await self._send_error(context, forward)
        if error := await self._wait_until_ready(context, forward.model):
            return await self._send_error(context, error)
        context.model = forward.model
        assignment = Assignment(router, forward.model)
        upstream_request = UpstreamRequest(
            forward,
            request.rel_url.raw_query_string,
            request.headers.items(),
            body,
            context.request_id,
            assignment,
        )
        try:
            upstream = await self._upstream.send(upstream_request)
            if isinstance(upstream, ErrorResponse):
                return await self._send_error(context, upstream)
            try:
                return await self._relay(context, upstream)
            finally:
                upstream.response.close()
        finally:
            assignment.release()

    async def _wait_until_ready(self, context: RequestContext, model: str) -> ErrorResponse | None:
        """None once the model has a ready replica. Waits for newer tables for a moment if it has none."""
        if (error := self._router.check_model(model)) is None:
            return None
        wait_began_at = self._clock.monotonic()
        error = await self._table_watch.recheck(
            lambda: self._router.check_model(model), error_response.may_resolve
        )
        context.waited_s += self._clock.monotonic() - wait_began_at
        return error

    async def _relay(self, context: RequestContext, upstream: UpstreamResponse) -> web.StreamResponse:
        now = self._clock.monotonic()
        in_replica_s = upstream.first_byte_at - upstream.sent_at
        overhead_s = now - context.started_at - context.waited_s - in_replica_s
        head = headers.to_client(
            upstream.response.headers.items(), upstream.target.kernel_id, overhead_s, context.request_id
        )
        self._router.metrics.record_first_byte(upstream.first_byte_at - context.started_at, overhead_s)
        context.response_started = True
        response, failure = await relay(context.request, upstream, head)
        context.status = upstream.response.status
        if failure is not None:
            self._record_interruption(context, upstream, failure)
        return response

    def _record_interruption(
        self, context: RequestContext, upstream: UpstreamResponse, failure: Failure
    ) -> None:
        self._router.record_failure(context.model, upstream.target, failure, self._clock.monotonic())
        log.warning(
            "replica failed in the middle of a response",
            model=context.model,
            kernel=upstream.target.kernel_id,
            kind=failure.value,
            request_id=context.request_id,
        )

    async def _read_body(self, context: RequestContext) -> bytes | ErrorResponse:
        request, limit = context.request, self._settings.max_body_bytes
        await context.send_continue()
        content, chunks, size = request.content, [], 0
        try:
            async with asyncio.timeout(self._timeouts.body_s):
                while chunk := await content.readany():
                    size += len(chunk)
                    if size > limit:
                        return error_response.body_too_large(limit)
                    chunks.append(chunk)
        except TimeoutError:
            return error_response.body_timeout(self._timeouts.body_s)
        except web.RequestPayloadError:
            return error_response.incomplete_body()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _send_error(self, context: RequestContext, error: ErrorResponse) -> web.Response:
        context.status = error.status
        response = _json_response(error.status, error.body(), context.request_id)
        response.headers.update(error.headers)
        if error.close:
            response.force_close()
        if context.expects_continue:
            # The client may or may not send its body now, so the next bytes are ambiguous: close at once.
            response.force_close()
            await response.prepare(context.request)
            await response.write_eof()
            context.request.protocol.force_close()
        return response


def _malformed(status: int, detail: str) -> web.Response:
    return _json_response(status, error_response.malformed_http(status, detail).body(), None)


def _json_response(status: int, body: bytes, request_id: str | None) -> web.Response:
    response = web.Response(status=status, body=body, content_type="application/json")
    response.headers["Server"] = _SERVER
    if request_id is not None:
        response.headers["x-request-id"] = request_id
    return response
