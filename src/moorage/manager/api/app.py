"""The API as an aiohttp application: the table's routes, and a middleware that turns errors into answers."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from string import Formatter
from urllib.parse import quote

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from moorage.common.model.errors import MoorageError, NotFound, Unauthenticated
from moorage.manager.api.authentication import Access, check_admin
from moorage.manager.api.dependencies import ApiServices
from moorage.manager.api.health import DESCRIPTION
from moorage.manager.api.openapi import describe
from moorage.manager.api.problems import InternalError, MethodNotAllowed, did_you_mean, problem_response
from moorage.manager.api.request import fits, read_body, read_query
from moorage.manager.api.route import Call, Route
from moorage.manager.api.routes import ROUTES
from moorage.manager.api.sessions import STREAM

log = structlog.get_logger("moorage.api")

# How long answers may take to end by themselves when the manager stops, and then again to be cut off.
_SHUTDOWN_S = 2.0
_REQUEST_ID = web.RequestKey("moorage.request_id", str)
_GOOD_REQUEST_ID = re.compile(r"^[A-Za-z0-9._:-]{1,128}$")


def build_runner(deps: ApiServices) -> web.AppRunner:
    """The application, to be set up and given a site. Its ``cleanup`` takes twice ``_SHUTDOWN_S`` at most,
    whatever its clients do."""
    # Handlers are cancelled when the client leaves: a followed log must not be read for nobody.
    return web.AppRunner(
        _build_app(deps), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S
    )


def _build_app(deps: ApiServices) -> web.Application:
    app = web.Application(middlewares=[_answer_errors(deps)], client_max_size=deps.max_body_bytes)
    app[DESCRIPTION] = json.dumps(describe(ROUTES, deps.version)).encode()
    app.on_response_prepare.append(_sign)
    access = Access(deps.store, deps.clock)
    expect = _expect(deps.max_body_bytes)
    for row in ROUTES:
        handler = _serve(row, deps, access)
        app.router.add_route(row.method, row.path, handler, expect_handler=expect)
        if row.access == "open":
            app.router.add_route("HEAD", row.path, handler)
    return app


def _serve(row: Route, deps: ApiServices, access: Access) -> Handler:
    placed = [name for _, name, _, _ in Formatter().parse(row.location) if name]

    async def handler(request: web.Request) -> web.StreamResponse:
        key = None
        if row.access != "open":
            key = await access.key_of(request)
            if row.access == "admin":
                check_admin(key)
        if "\0" in "".join(request.match_info.values()):
            raise NotFound("no name contains a NUL character")
        query = read_query(request, row.query)
        body = await read_body(request, row.body, deps.max_body_bytes) if row.body is not None else None
        call = Call(request, deps, key, body, query)
        answer = await row.handler(call)
        if isinstance(answer, web.StreamResponse):
            return answer
        made = row.dry_run is None or not isinstance(answer, row.dry_run)
        response = web.Response(
            status=row.status if made else 200,
            body=answer.model_dump_json().encode(),
            content_type="application/json",
        )
        response.headers.update(call.answer_headers)
        if row.location and made:
            fields = {name: quote(str(getattr(answer, name)), safe="") for name in placed}
            response.headers["Location"] = row.location.format_map(fields)
        return response

    return handler


def _expect(max_body_bytes: int) -> Callable[[web.Request], Awaitable[None]]:
    async def expect(request: web.Request) -> None:
        """Ask for the body only if it may be sent; else the 413 goes out in place of "100 Continue"."""
        if request.headers["Expect"].lower() == "100-continue" and fits(request, max_body_bytes):
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0

    return expect


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "moorage"
    if request_id := request.get(_REQUEST_ID):
        response.headers["x-request-id"] = request_id
    if not request.content.is_eof():
        # Answered before the whole body came: what comes next on this connection would be taken for its rest.
        response.headers["Connection"] = "close"
        response.force_close()


def _answer_errors(deps: ApiServices) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("x-request-id", "")
        request_id = given if _GOOD_REQUEST_ID.match(given) else deps.clock.new_id()
        request[_REQUEST_ID] = request_id
        try:
            return await handler(request)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as refused:
            error, headers = _from_aiohttp(request, refused)
        except MoorageError as known:
            error, headers = known, {}
            if isinstance(known, Unauthenticated):
                headers["WWW-Authenticate"] = 'Bearer realm="moorage"'
        except Exception as unknown:
            if isinstance(unknown, ConnectionError) and STREAM in request:
                raise  # the reader has left: nobody to answer
            log.exception("request failed", request_id=request_id, method=request.method, path=request.path)
            headers = {}
            error = InternalError(
                f"something went wrong inside the manager (request {request_id})",
                next_step="look for this request id in the manager's log",
            )
        if stream := request.get(STREAM):
            return _cut_off(request, stream, error)
        return problem_response(error, headers)

    return middleware


def _cut_off(request: web.Request, stream: web.StreamResponse, error: MoorageError) -> web.StreamResponse:
    """The status is out already: a broken connection is the only way left to say that this is not all."""
    log.warning("stream cut off", request_id=request[_REQUEST_ID], path=request.path, error=str(error))
    if request.transport is not None:
        request.transport.abort()
    return stream


def _from_aiohttp(
    request: web.Request, refused: web.HTTPNotFound | web.HTTPMethodNotAllowed
) -> tuple[MoorageError, dict[str, str]]:
    if isinstance(refused, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refused.allowed_methods))
        error = MethodNotAllowed(
            f"{request.method} is not allowed at {request.path}", next_step=f"allowed here: {allowed}"
        )
        return error, {"Allow": allowed}
    hint = did_you_mean(request.path, {row.path for row in ROUTES if "{" not in row.path})
    return NotFound(f"there is nothing at {request.path}{hint}", next_step="see /openapi.json"), {}
