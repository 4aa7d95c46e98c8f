"""Traces of the requests that create sessions. The request's span is the parent of the spans of the
session starts."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import MoorageError
from moorage.common.telemetry.spans import Span, SpanContext, TraceSink, Value, parse_traceparent
from moorage.manager.api.http.audit import REQUEST_ID
from moorage.manager.api.http.route import Route

TRACE = web.RequestKey("moorage.trace", SpanContext)
SESSION = web.RequestKey("moorage.session", str)
"""The id of the session that the request is about, once it is known."""
_CREATING = frozenset(
    {
        ("POST", "/v1/sessions"),
        ("POST", "/v1/templates/{name:.+}/sessions"),
        ("POST", "/v1/pipelines"),
        ("POST", "/v1/pipelines/{ref:.+}/retry"),
    }
)


class RequestSubject:
    """A request's fields in log lines (``LogSubject``)."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def log_fields(self) -> dict[str, str]:
        request = self._request
        context = request.get(TRACE) or parse_traceparent(request.headers.get("traceparent"))
        is_endpoint = request.path.startswith("/v1/endpoints/")
        return {
            "request_id": request.get(REQUEST_ID, ""),
            "trace_id": "" if context is None else context.trace,
            "session_id": request.get(SESSION, ""),
            "endpoint": request.match_info.get("name", "") if is_endpoint else "",
        }


def traced(row: Route, handler: Handler, tracer: TraceSink | None, clock: Clock) -> Handler:
    """Wrap ``handler`` so that each request has a span. Returns ``handler`` itself if tracing is
    off."""
    if tracer is None or (row.method, row.path) not in _CREATING:
        return handler

    name = f"{row.method} {row.path.replace(':.+', '')}"

    async def serve(request: web.Request) -> web.StreamResponse:
        began = clock.now().timestamp()
        parent = (
            parse_traceparent(request.headers.get("traceparent"))
            if tracer.accepts_parents
            else None
        )
        context = request[TRACE] = tracer.begin(parent)
        status = 500
        error = "internal"
        try:
            response = await handler(request)
            status = response.status
            error = ""
            return response
        except MoorageError as known:
            status = known.http
            error = known.code
            raise
        finally:
            attributes: dict[str, Value] = {
                "http.request.method": row.method,
                "http.response.status_code": status,
                "url.path": request.path,
                "moorage.request.id": request.get(REQUEST_ID, ""),
            }
            if error:
                attributes["error.type"] = error

            span = Span(
                name,
                context,
                parent.span_id if parent else 0,
                began,
                end=clock.now().timestamp(),
                attributes=attributes,
                kind="SERVER",
                error=error if status >= 500 else "",
            )
            tracer.record([span])

    return serve
