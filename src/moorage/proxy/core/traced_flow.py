"""Request flow with a trace: records the flow's decisions and their times as spans. Pure.

    request                 SERVER: from the head to the end of the response
    ├─ admission            until the request is read and admitted, or refused
    ├─ queue                while it is held for a replica; once for each time
    └─ replica              CLIENT: one for each attempt; the engine's spans are below it

Tracing does not wrap the flow: without a tracer, this class is not used at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moorage.common.telemetry.spans import Span, SpanContext, TraceSink, Value, parse_traceparent
from moorage.proxy.core.admission import BodyRequired
from moorage.proxy.core.commands import Break, Command, Send, WaitForReplica
from moorage.proxy.core.error_response import ErrorResponse
from moorage.proxy.core.flow import RequestFlow
from moorage.proxy.core.flow_states import ENDED
from moorage.proxy.core.request_body import LargeReader
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.retry import Failure

_OF_CLIENT: Final = frozenset({"traceparent", "tracestate"})
_ONLY_PARENT: Final = frozenset({"traceparent"})


class TracedFlow(RequestFlow):
    """``replaced``: the client's headers, in lower case, that replicas do not get."""

    __slots__ = (
        "_attempt_count",
        "_began_at",
        "_context",
        "_held_at",
        "_method",
        "_noted",
        "_parent_id",
        "_read_at",
        "_spans",
        "_tracer",
        "_upstream",
        "replaced",
    )

    def __init__(
        self, router: RequestRouter, request_id: str, now: float, tracer: TraceSink
    ) -> None:
        super().__init__(router, request_id, now)
        self._tracer = tracer
        self._began_at = now
        self._context: SpanContext | None = None
        self._parent_id = 0
        self._attempt_count = 0
        self._spans: list[Span] = []
        self._upstream: _Attempt | None = None
        self._held_at = -1.0
        self._read_at = -1.0
        self._method = ""
        self._noted: Command | None = None
        self.replaced = _OF_CLIENT

    @property
    def trace(self) -> str:
        """The trace's id, for logs; empty if it is not recorded."""
        context = self._context
        return context.trace if context is not None and context.is_sampled else ""

    def _begin(self, method: str, parent: SpanContext | None) -> None:
        self._context = self._tracer.begin(parent)
        self._method = method
        self._parent_id = 0 if parent is None else parent.span_id

    # Events

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
        parent = (
            parse_traceparent(fields.get("traceparent")) if self._tracer.accepts_parents else None
        )
        if parent is not None:
            self.replaced = _ONLY_PARENT  # the tracestate belongs to the trace

        self._begin(method, parent)
        return self._note(
            super().head(
                method, path, fields=fields, size=size, now=now, unix_now=unix_now, query=query
            ),
            now,
        )

    def head_again(self, admitted: BodyRequired, now: float, unix_now: float) -> Command:
        self._begin(admitted.method, None)
        return self._note(super().head_again(admitted, now, unix_now), now)

    def refuse(self, error: ErrorResponse, now: float) -> Command:
        return self._note(super().refuse(error, now), now)

    def body(self, body: bytes, now: float, large: LargeReader | None = None) -> Command:
        return self._note(super().body(body, now, large), now)

    def timer(self, now: float) -> Command:
        return self._note(super().timer(now), now)

    def routes_changed(self, now: float) -> Command | None:
        command: Command | None = super().routes_changed(now)
        return command if command is None else self._note(command, now)

    def upstream_failed(self, failure: Failure, now: float) -> Command:
        self._end_attempt(now, failure.value)
        return self._note(super().upstream_failed(failure, now), now)

    def upstream_head(
        self, status: int, content_type: str, now: float, begin: bytes = b"", *, coding: str = ""
    ) -> Command:
        if (attempt := self._upstream) is not None:
            attempt.status = status
            attempt.first_byte_at = now
        command = super().upstream_head(status, content_type, now=now, begin=begin, coding=coding)
        return self._note(command, now)

    def upstream_lost(self, failure: Failure, tail: bytes | None, now: float) -> Break:
        self._end_attempt(now, failure.value)
        return super().upstream_lost(failure, tail, now)

    # Spans

    def _note(self, command: Command, now: float) -> Command:
        """Record the spans that ``command`` ends and starts. One event may handle another, so it
        may be called twice."""
        if command is self._noted:
            return command

        self._noted = command
        context = self._context
        if context is None or not context.is_sampled:
            self._name_next(command, context)
            return command

        if isinstance(command, WaitForReplica):
            self._end_admission(now)
            if self._held_at < 0:
                self._end_attempt(now, "")
                self._held_at = now
        elif isinstance(command, Send):
            self._end_admission(now)
            self._end_hold(now, "")
            self._end_attempt(now, "")  # the request was sent to another replica
            self._name_next(command, context)
            target = command.target
            span_id = self._tracer.new_span_id()
            self._upstream = _Attempt(context._replace(span_id=span_id), now, self._attempt_count)
            self._attempt_count += 1
            attributes = self._upstream.attributes
            attributes["server.address"] = target.host
            attributes["server.port"] = target.port
            attributes["moorage.kernel.id"] = target.kernel_id
            attributes["moorage.session.id"] = target.session_id
            self.traceparent = "" if target.tls else self._upstream.context.traceparent

        return command

    def _name_next(self, command: Command, context: SpanContext | None) -> None:
        """Set the trace headers for the replica of an unrecorded trace."""
        if isinstance(command, Send) and context is not None:
            self.traceparent = "" if command.target.tls else context.traceparent

    def _add(
        self, name: str, start: float, end: float, attributes: dict[str, Value], *, error: str
    ) -> None:
        context = self._context
        assert context is not None
        own = context._replace(span_id=self._tracer.new_span_id())

        self._spans.append(
            Span(
                name,
                own,
                parent_id=context.span_id,
                start=start,
                end=end,
                attributes=attributes,
                error=error,
            )
        )

    def _end_admission(self, now: float, error: str = "") -> None:
        if self._read_at < 0:
            self._read_at = now
            self._add("admission", self._began_at, end=now, attributes={}, error=error)

    def _end_hold(self, now: float, error: str) -> None:
        if self._held_at >= 0:
            self._add(
                "queue",
                self._held_at,
                end=now,
                attributes={"gen_ai.request.model": self.model},
                error=error,
            )
            self._held_at = -1.0

    def _end_attempt(self, now: float, error: str) -> None:
        attempt = self._upstream
        context = self._context
        if attempt is None or context is None:
            return

        self._upstream = None
        if error:
            attempt.attributes["error.type"] = error
        if attempt.status:
            attempt.attributes["http.response.status_code"] = attempt.status

        first = attempt.first_byte_at
        self._spans.append(
            Span(
                "replica",
                attempt.context,
                parent_id=context.span_id,
                start=attempt.start,
                end=now,
                attributes=attempt.attributes
                | ({"http.response.status_code": attempt.status} if attempt.status else {}),
                kind="CLIENT",
                error=error,
                events=(("first_byte", first),) if first else (),
            )
        )

    def _end(self, status: int, now: float) -> None:
        context = self._context
        if self.state == ENDED or context is None or not context.is_sampled:
            super()._end(status, now)
            return

        error = f"status {status}" if status >= 500 or status == 499 else ""
        self._end_admission(now, f"status {status}" if status >= 400 else "")
        self._end_hold(now, error)
        self._end_attempt(now, "")
        attributes: dict[str, Value] = {
            "http.request.method": self._method,
            "http.response.status_code": status,
            "moorage.request.id": self.request_id,
        }
        path = self.path or ("" if self.admitted is None else self.admitted.path)
        if path:
            attributes["url.path"] = path
        if self.model:
            attributes["gen_ai.request.model"] = self.model
        if error:
            attributes["error.type"] = str(status)

        api = "/".join(path.split("/", 4)[:4])  # without ids
        name = f"{self._method} {api}".strip() or "request"
        super()._end(status, now)
        self._spans.append(
            Span(
                name,
                context,
                parent_id=self._parent_id,
                start=self._began_at,
                end=now,
                attributes=attributes,
                kind="SERVER",
                error=error,
            )
        )
        spans = self._spans
        self._spans = []
        self._tracer.record(spans, now)


class _Attempt:
    """An attempt at a replica that has not ended yet."""

    __slots__ = ("attributes", "context", "first_byte_at", "start", "status")

    def __init__(self, context: SpanContext, start: float, number: int) -> None:
        self.context = context
        self.start = start
        self.status = 0
        self.first_byte_at = 0.0
        self.attributes: dict[str, Value] = {"http.request.resend_count": number} if number else {}


def replaced_headers(flow: RequestFlow) -> frozenset[str]:
    """The client's headers, in lower case, that the proxy replaces or drops for replicas."""
    return flow.replaced if isinstance(flow, TracedFlow) else frozenset()


def begin_flow(router: RequestRouter, request_id: str, now: float) -> RequestFlow:
    """A request's flow, with a trace if the proxy has a tracer."""
    tracer = router.tracer
    if tracer is None:
        return RequestFlow(router, request_id, now)
    return TracedFlow(router, request_id, now, tracer)
