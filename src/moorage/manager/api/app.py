"""REST API as an aiohttp application: the table's routes, and middleware that maps errors to
responses."""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from string import Formatter
from urllib.parse import quote

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from moorage.common.aio.clock import Clock
from moorage.common.http.cors import Cors
from moorage.common.http.head import HeadGuard
from moorage.common.http.server import (
    ConnectionLimits,
    GuardedSite,
    Listener,
    LocalSite,
    find_problem,
)
from moorage.common.model.errors import MoorageError, NotFound, Unauthenticated
from moorage.common.telemetry.log_context import LOG_SUBJECT
from moorage.manager.api.http import docs_page
from moorage.manager.api.http.audit import REQUEST_ID, is_audited, reader_of, run_audited
from moorage.manager.api.http.authentication import Authenticator
from moorage.manager.api.http.authorization import check_access
from moorage.manager.api.http.compression import compressed
from moorage.manager.api.http.conditional import conditional
from moorage.manager.api.http.dependencies import ApiServices
from moorage.manager.api.http.description import Description, LazyDescription
from moorage.manager.api.http.group_names import with_current_names
from moorage.manager.api.http.long_requests import OpenRequests
from moorage.manager.api.http.previous_release import planning_on_dry_run
from moorage.manager.api.http.problems import (
    InternalError,
    MalformedRequest,
    MethodNotAllowed,
    did_you_mean,
    problem_response,
)
from moorage.manager.api.http.request import (
    BUDGET_WARNING,
    MAX_VALUES,
    OPEN_BODY_BYTES,
    STREAM,
    BodyLimits,
    is_within_limit,
    read_body,
    read_query,
)
from moorage.manager.api.http.request_tracing import TRACE, RequestSubject, traced
from moorage.manager.api.http.route import Call, Route, by_precedence
from moorage.manager.api.platform.health import DESCRIPTION
from moorage.manager.api.routes import ROUTES
from moorage.manager.console import add_console
from moorage.manager.console.files import PREFIX as CONSOLE
from moorage.manager.http_metrics import NO_ROUTE, HttpMetrics
from moorage.manager.identity.scope import ANONYMOUS, Scope

log = structlog.get_logger("moorage.api")

# When the manager stops, responses have this many seconds to finish; aborting the rest may take as
# long again.
SHUTDOWN_S = 2.0
_VALIDREQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def build_runner(
    deps: ApiServices, guard: HeadGuard, metrics: HttpMetrics | None = None
) -> web.AppRunner:
    """Create a runner for the application. Its ``cleanup`` takes at most twice ``SHUTDOWN_S``, no
    matter what the clients do."""
    # Cancel handlers when the client disconnects, because a followed log then has no reader.
    return web.AppRunner(
        _build_app(deps, guard, metrics),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=SHUTDOWN_S,
    )


async def serve_api(
    deps: ApiServices,
    host: str,
    port: int,
    *,
    names: Iterable[str] = (),
    tls: ssl.SSLContext | None = None,
    metrics: HttpMetrics | None = None,
) -> web.AppRunner:
    """Start listening, and return the runner, whose ``addresses`` are then known. Raises
    ``OSError``.

    ``names`` is the setting ``manager.allowed_hosts``."""
    runner = build_runner(deps, HeadGuard(host, names, setting="manager.allowed_hosts"), metrics)
    await runner.setup()

    try:
        await GuardedSite(
            runner, host, port, Listener(partial(_unread, deps.cors), deps.limits, tls)
        ).start()
    except OSError:
        await runner.cleanup()
        raise

    return runner


async def serve_locally(
    runner: web.AppRunner, listening: socket.socket, limits: ConnectionLimits
) -> None:
    """Also serve ``runner``'s application on ``listening``, a listening Unix socket."""
    await LocalSite(runner, listening, Listener(_malformed, limits)).start()


def _unread(cors: Cors, status: int, detail: str) -> web.Response:
    response = _malformed(status, detail)
    response.headers.extend(cors.unread)
    return response


def _malformed(status: int, detail: str) -> web.Response:
    next_step = "send a request that every HTTP/1.1 server reads in the same way"
    if status in (414, 431):
        next_step = "send a shorter path, query and headers"

    error = MalformedRequest(f"malformed HTTP request: {detail}", next_step=next_step)
    return problem_response(error, status=status)


def _build_app(deps: ApiServices, guard: HeadGuard, metrics: HttpMetrics | None) -> web.Application:
    errors = _error_middleware(deps, guard)
    middlewares = (
        [_timing_middleware(metrics, deps.clock), errors] if metrics is not None else [errors]
    )
    app = web.Application(middlewares=middlewares, client_max_size=deps.max_body_bytes)
    app[DESCRIPTION] = LazyDescription(partial(_description, deps.version))
    app.on_response_prepare.append(_set_headers)
    app.on_response_prepare.append(_cors_headers(deps.cors))
    app.on_shutdown.append(_end_streams(deps))
    authenticator = Authenticator(deps.store, deps.clock, deps.on_plain_key)

    # Created after the authenticator, because the same changes empty its cache.
    requests = OpenRequests(deps.clock, deps.store.keys.on_change)
    app.cleanup_ctx.append(requests.running)
    handlers = {
        (row.method, row.path): traced(
            row, _serve(row, deps, authenticator, requests), deps.tracer, deps.clock
        )
        for row in ROUTES
    }
    for row in by_precedence(ROUTES):
        handler = handlers[row.method, row.path]
        if plan := handlers.get((row.method, f"{row.path}/plan")):
            handler = planning_on_dry_run(handler, plan)

        expect = _expect(_max_body_bytes(row, deps))
        app.router.add_route(row.method, row.path, handler, expect_handler=expect)
        if row.method == "GET" and not row.streams:
            app.router.add_route("HEAD", row.path, handler)

    add_console(app, deps.clock, deps.models)
    return app


def _end_streams(deps: ApiServices) -> Callable[[web.Application], Awaitable[None]]:
    async def end(_: web.Application) -> None:
        deps.events.close()

    return end


@cache  # the tests build hundreds of applications
def _description(version: str) -> Description:
    from moorage.manager.api.http.openapi import describe  # few managers ever need it

    document = describe(ROUTES, version)
    return Description(json.dumps(document).encode(), docs_page.render(document))


def _serve(
    row: Route, deps: ApiServices, authenticator: Authenticator, requests: OpenRequests
) -> Handler:
    audited = is_audited(row)
    reader = reader_of(row, ROUTES)
    limits = BodyLimits(_max_body_bytes(row, deps), row.max_body_values or MAX_VALUES)
    location_fields = [name for _, name, _, _ in Formatter().parse(row.location) if name]

    async def handler(request: web.Request) -> web.StreamResponse:
        async def authenticated(*, renewed: bool = True) -> Scope:
            scope = Scope.of(await authenticator.authenticate(request, renewed=renewed))
            check_access(row, scope)
            return scope

        scope = ANONYMOUS if row.access == "open" else await authenticated(renewed=False)
        if (trace := request.get(TRACE)) is not None:
            scope = replace(scope, trace=trace)
        if "\0" in "".join(request.match_info.values()):
            raise NotFound("names cannot contain a NUL character")

        query = read_query(request, row.query)
        body = await read_body(request, row.body, deps, limits) if row.body is not None else None
        if row.access != "open" and (aliases := await deps.store.group_aliases.names()):
            query = with_current_names(query, aliases)
            body = with_current_names(body, aliases) if body is not None else None

        call = Call(
            deps,
            scope,
            request=request,
            body=body,
            query=query,
            renew=authenticated,
            action=row.action,
        )
        is_open = row.access == "open"
        with (
            nullcontext()
            if is_open
            else requests.ending_without_rights(request, scope, authenticated)
        ):
            answer = await (run_audited(row, reader, call) if audited else row.handler(call))

        if isinstance(answer, web.StreamResponse):
            return conditional(request, answer)

        response = web.Response(
            status=row.status,
            body=answer.model_dump_json().encode(),
            content_type="application/json",
        )
        response.headers.update(call.response_headers)

        if row.access != "open" and (warnings := await deps.store.budgets.warnings(scope)):
            response.headers[BUDGET_WARNING] = (
                "; ".join(warnings).encode("ascii", "replace").decode()
            )

        if row.location:
            fields = {name: quote(str(getattr(answer, name)), safe="") for name in location_fields}
            response.headers["Location"] = row.location.format_map(fields)

        return await compressed(request, conditional(request, response))

    return handler


def _max_body_bytes(row: Route, deps: ApiServices) -> int:
    if row.access == "open":
        return min(OPEN_BODY_BYTES, deps.max_body_bytes)
    return max(row.max_body_bytes, deps.max_body_bytes)


def _expect(max_body_bytes: int) -> Callable[[web.Request], Awaitable[None]]:
    async def expect(request: web.Request) -> None:
        """Send "100 Continue" only if the body is within the limit; otherwise the client receives a
        413."""
        if request.headers["Expect"].lower() == "100-continue" and is_within_limit(
            request, max_body_bytes
        ):
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0

    return expect


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "moorage"
    if request_id := request.get(REQUEST_ID):
        response.headers["x-request-id"] = request_id
    if not request.content.is_eof():
        # The response is sent before the whole body has been read, so the rest of the body would be
        # parsed as the next request.
        response.headers["Connection"] = "close"
        response.force_close()


def _cors_headers(cors: Cors) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    async def add(request: web.Request, response: web.StreamResponse) -> None:
        if cors and not _is_of_console(request):
            preflight = cors.preflight(request.method, request.headers)
            response.headers.extend(preflight or cors.headers(request.headers.get("Origin")))

    return add


def _is_preflight(cors: Cors, request: web.Request) -> bool:
    """Whether the request asks for a page of an allowed origin what that page may send."""
    return not _is_of_console(request) and bool(cors.preflight(request.method, request.headers))


def _is_of_console(request: web.Request) -> bool:
    """Whether the request is for the console, which only pages of its own origin use."""
    return request.path == CONSOLE or request.path.startswith(f"{CONSOLE}/")


def _timing_middleware(metrics: HttpMetrics, clock: Clock) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = clock.monotonic()
        response = await handler(request)
        if isinstance(response, web.Response):  # not a stream
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else NO_ROUTE
            metrics.observe(request.method, route, response.status, clock.monotonic() - started)
        return response

    return middleware


def _error_middleware(deps: ApiServices, guard: HeadGuard) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("x-request-id", "")
        request_id = given if _VALIDREQUEST_ID.fullmatch(given) else deps.clock.new_id()
        request[REQUEST_ID] = request_id
        LOG_SUBJECT.set(RequestSubject(request))

        if refusal := find_problem(guard, request):
            response = _malformed(refusal.status, refusal.detail)
            response.force_close()  # the bytes that follow may also be misread
            return response

        if _is_preflight(deps.cors, request):
            return web.Response(status=204)

        try:
            return await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as refused:
            error, headers = _routing_error(request, refused)
        except MoorageError as known:
            error = known
            headers = {}
            if isinstance(known, Unauthenticated):
                headers["WWW-Authenticate"] = 'Bearer realm="moorage"'
        except Exception as unknown:
            if isinstance(unknown, ConnectionError) and (STREAM in request or _is_closed(request)):
                raise  # the client has disconnected

            log.exception(
                "request failed", request_id=request_id, method=request.method, path=request.path
            )
            headers = {}
            error = InternalError(
                f"the manager failed to process the request (request id {request_id})",
                next_step="search the manager's log for this request id",
            )
        finally:
            LOG_SUBJECT.set(None)  # the task continues with the next request of the connection

        if stream := request.get(STREAM):
            return _abort_stream(request, stream, error)

        return problem_response(error, headers)

    return middleware


def _is_closed(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _abort_stream(
    request: web.Request, stream: web.StreamResponse, error: MoorageError
) -> web.StreamResponse:
    """The status has already been sent, so closing the connection is the only way to signal that
    the response is incomplete."""
    log.warning(
        "stream aborted", request_id=request[REQUEST_ID], path=request.path, error=str(error)
    )
    if request.transport is not None:
        request.transport.abort()

    return stream


def _routing_error(
    request: web.Request, refused: web.HTTPNotFound | web.HTTPMethodNotAllowed
) -> tuple[MoorageError, dict[str, str]]:
    if isinstance(refused, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refused.allowed_methods))
        error = MethodNotAllowed(
            f"{request.path} does not support {request.method}",
            next_step=f"supported methods: {allowed}",
        )
        return error, {"Allow": allowed}

    hint = did_you_mean(request.path, {row.path for row in ROUTES if "{" not in row.path})
    return NotFound(
        f"no route matches {request.path}{hint}", next_step="/openapi.json lists all routes"
    ), {}
