"""The data plane on aiohttp: a low-level server in front, a pooled client behind."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import http_exceptions, web

from moorage.common.aio.tasks import cancel_and_wait
from moorage.common.config.settings import ProxySettings
from moorage.proxy.apps import Apps
from moorage.proxy.control.updates import News
from moorage.proxy.core import error_response, headers
from moorage.proxy.core.admission import Answer
from moorage.proxy.core.error_response import Refuse
from moorage.proxy.core.exchange import CLIENT_LEFT, Exchange
from moorage.proxy.core.request_router import Decider
from moorage.proxy.core.retry import Failure
from moorage.proxy.core.routes import Table
from moorage.proxy.planes.relay import relay
from moorage.proxy.planes.upstream import Job, Opened, Upstream

log = structlog.get_logger("moorage.proxy")

# From the head of a request to the end of its body.
_BODY_WITHIN_S = 60.0
# After a refusal, the rest of a body is thrown away for so long: a client that sends first and reads
# then would else find its connection reset, and the refusal lost.
_LINGER_S = 10.0
_SERVER = "moorage"
# Different, because aiohttp's error tells only which of the two was passed.
_LONGEST_URL = 16_384
_LONGEST_HEADER = 32_768


class AiohttpPlane:
    """``DataPlane`` on aiohttp (see there for what it promises)."""

    def __init__(self, decider: Decider, settings: ProxySettings) -> None:
        self._decider, self._settings, self._clock = decider, settings, decider.clock
        self._upstream = Upstream(decider, settings)
        self._news = News(decider.clock)
        self._apps = Apps(decider, settings, self._news)
        decider.on_table = self._take
        self._runner: web.ServerRunner | None = None
        self._running: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        await self._upstream.__aenter__()
        await self._apps.__aenter__()
        server = _Server(
            self._handle,
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            lingering_time=_LINGER_S,
            max_line_size=_LONGEST_URL,
            max_field_size=_LONGEST_HEADER,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, backlog=1024)
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
                log.info("cutting answers that did not end in time", count=len(self._running))
                await cancel_and_wait(*self._running)
            await self._runner.cleanup()
            self._runner = None
        await self._apps.__aexit__()
        await self._upstream.__aexit__()

    def _take(self, table: Table) -> None:
        self._news.came()
        self._apps.keep_only(table)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self._idle.clear()
        exchange = Exchange(request, self._clock)
        try:
            return await self._answer(exchange)
        except ConnectionError:
            exchange.code = CLIENT_LEFT
            raise
        except Exception as error:
            log.error("request failed", request_id=exchange.request_id, error=repr(error), exc_info=error)
            if exchange.committed:
                raise ConnectionResetError("the answer cannot be completed") from error
            return await self._refuse(exchange, error_response.internal_error(exchange.request_id))
        finally:
            self._running.discard(task)
            if not self._running:
                self._idle.set()
            took = self._clock.monotonic() - exchange.began
            self._decider.answered(exchange.model, exchange.code, took)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        request, decider = exchange.request, self._decider
        if (asked := self._apps.asked(request)) is not None:
            return await self._apps.answer(exchange, asked)
        verdict = decider.head(request.method, request.path, request.headers, request.content_length)
        if isinstance(verdict, Answer):
            exchange.code = 200
            return _json_response(200, verdict.body, exchange.request_id)
        if isinstance(verdict, Refuse):
            return await self._refuse(exchange, verdict)
        asked_at = self._clock.monotonic()
        body = await self._read_body(exchange)
        exchange.waited = self._clock.monotonic() - asked_at
        if isinstance(body, Refuse):
            return await self._refuse(exchange, body)
        forward = decider.body(verdict.path, body)
        if isinstance(forward, Refuse):
            return await self._refuse(exchange, forward)
        if refused := await self._unready(exchange, forward.model):
            return await self._refuse(exchange, refused)
        exchange.model = forward.model
        lease = decider.lease(forward.model)
        job = Job(
            forward,
            request.rel_url.raw_query_string,
            request.headers.items(),
            body,
            exchange.request_id,
            lease,
        )
        try:
            opened = await self._upstream.open(job)
            if isinstance(opened, Refuse):
                return await self._refuse(exchange, opened)
            try:
                return await self._pass_on(exchange, opened)
            finally:
                opened.response.close()
        finally:
            lease.release()

    async def _unready(self, exchange: Exchange, model: str) -> Refuse | None:
        if (refused := self._decider.model(model)) is None:
            return None
        asked_at = self._clock.monotonic()
        refused = await self._news.settled(lambda: self._decider.model(model), error_response.may_pass)
        exchange.waited += self._clock.monotonic() - asked_at
        return refused

    async def _pass_on(self, exchange: Exchange, opened: Opened) -> web.StreamResponse:
        now = self._clock.monotonic()
        in_replica = opened.first_byte_at - opened.sent_at
        overhead = now - exchange.began - exchange.waited - in_replica
        head = headers.to_client(
            opened.response.headers.items(), opened.target.kernel_id, overhead, exchange.request_id
        )
        self._decider.metrics.first_byte(opened.first_byte_at - exchange.began, overhead)
        exchange.committed = True
        answer, failure = await relay(exchange.request, opened, head)
        exchange.code = opened.response.status
        if failure is not None:
            self._broke_off(exchange, opened, failure)
        return answer

    def _broke_off(self, exchange: Exchange, opened: Opened, failure: Failure) -> None:
        self._decider.failed(exchange.model, opened.target, failure)
        log.warning(
            "replica broke off in the middle of an answer",
            model=exchange.model,
            kernel=opened.target.kernel_id,
            kind=failure.value,
            request_id=exchange.request_id,
        )

    async def _read_body(self, exchange: Exchange) -> bytes | Refuse:
        request, limit = exchange.request, self._settings.max_body_bytes
        await exchange.let_body_come()
        content, pieces, size = request.content, [], 0
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                while piece := await content.readany():
                    size += len(piece)
                    if size > limit:
                        return error_response.body_too_large(limit)
                    pieces.append(piece)
        except TimeoutError:
            return error_response.slow_body(_BODY_WITHIN_S)
        except web.RequestPayloadError:
            return error_response.broken_body()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _refuse(self, exchange: Exchange, refused: Refuse) -> web.Response:
        exchange.code = refused.status
        answer = _json_response(refused.status, refused.body(), exchange.request_id)
        answer.headers.update(refused.headers)
        if refused.close:
            answer.force_close()
        if exchange.waits_for_continue:
            # It may send its body now or never: nobody could tell what the next bytes mean.
            answer.force_close()
            await answer.prepare(exchange.request)
            await answer.write_eof()
            exchange.request.protocol.force_close()
        return answer


class _Connection(web.RequestHandler):
    """aiohttp's connection, with errors in our shape instead of its plain text."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionResetError("the answer cannot be completed")
        if isinstance(exc, http_exceptions.LineTooLong):
            status = 414 if exc.args[1] == _LONGEST_URL else 431
            detail = f"its URL is limited to {_LONGEST_URL} bytes, each header to {_LONGEST_HEADER}"
        else:
            detail = (message or "bad request").splitlines()[0].rstrip(":. ")
        answer = _json_response(status, error_response.malformed_http(status, detail).body(), None)
        answer.force_close()
        return answer


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


def _json_response(status: int, body: bytes, request_id: str | None) -> web.Response:
    answer = web.Response(status=status, body=body, content_type="application/json")
    answer.headers["Server"] = _SERVER
    if request_id is not None:
        answer.headers["x-request-id"] = request_id
    return answer
