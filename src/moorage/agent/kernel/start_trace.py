"""Trace of a kernel's start: a span for each step that the kernel's task takes until the kernel is
ready or has failed.

Disabled tracing is a separate class: without a tracer, or for a session that is not recorded,
``StartTrace`` does nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from moorage.agent.kernel.checkpoint import KernelRecord
from moorage.common.aio.clock import Clock
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import ObservedState
from moorage.common.telemetry.log_context import LogFields, working_for
from moorage.common.telemetry.spans import (
    Span,
    SpanContext,
    TraceSink,
    Value,
    kernel_context,
    parse_traceparent,
)

T = TypeVar("T")
# A step that took less time had nothing to do.
_SHORTEST_S = 0.001


class StartTrace:
    """A trace that records nothing."""

    async def step(self, name: str, work: Awaitable[T]) -> T:
        """Run a step of the start and return the result of ``work``."""
        return await work

    def note(self, state: ObservedState, record: KernelRecord) -> None:
        """Note that the kernel has reached ``state``. ``record`` includes the outcome if the kernel
        has ended."""


class RecordedStart(StartTrace):
    """A trace that starts at ``record.created_at``, even after an agent restart, but then only
    includes the steps since the restart."""

    def __init__(
        self, sink: TraceSink, session: SpanContext, record: KernelRecord, clock: Clock
    ) -> None:
        self._sink = sink
        self._session = session
        self._clock = clock
        self._context = kernel_context(record.kernel_id, session)
        self._created_at = record.created_at
        self._spans: list[Span] = []
        self._last = clock.now().timestamp()  # when the last step ended
        self._queued_at: float | None = None  # when the kernel's job started to wait at a site
        self._over = False

    async def step(self, name: str, work: Awaitable[T]) -> T:
        began = self._clock.now().timestamp()
        error = ""
        try:
            return await work
        except BaseException as failed:
            error = str(getattr(failed, "reason", "")) or repr(failed)
            raise
        finally:
            self._last = self._clock.now().timestamp()
            if error or self._last - began >= _SHORTEST_S:
                self._add(name, began, self._last, error)

    def note(self, state: ObservedState, record: KernelRecord) -> None:
        if self._over:
            return

        now = self._clock.now().timestamp()
        outcome = record.outcome
        if state is ObservedState.QUEUED:
            self._queued_at = now if self._queued_at is None else self._queued_at
        elif self._queued_at is not None and state is not ObservedState.UNKNOWN:
            self._add("site queue", self._queued_at, now)
            self._queued_at = None
            self._last = now

        error = ""
        if outcome is not None:
            error = "" if outcome.exit_code == 0 else f"{outcome.reason}: {outcome.detail}"
        elif state is not ObservedState.RUNNING:
            return

        if record.handle is not None:
            self._add("readiness", self._last, now, error)

        self._end(now, record.spec, error)

    def _add(self, name: str, began: float, ended: float, error: str = "") -> None:
        own = self._context._replace(span_id=self._sink.new_span_id())
        self._spans.append(
            Span(
                name,
                own,
                parent_id=self._context.span_id,
                start=began,
                end=ended,
                attributes={},
                error=error,
            )
        )

    def _end(self, now: float, spec: KernelSpec, error: str) -> None:
        attributes: dict[str, Value] = {
            "moorage.session.id": spec.session_id,
            "moorage.kernel.id": spec.kernel_id,
            "moorage.runtime": spec.runtime,
            "moorage.engine": spec.engine,
        }
        if spec.cluster is not None:
            attributes["moorage.kernel.hostname"] = spec.cluster.hostname

        spans = self._spans
        self._spans = []
        self._over = True
        root = Span(
            "kernel start",
            self._context,
            parent_id=self._session.span_id,
            start=self._created_at,
            end=now,
            attributes=attributes,
            error=error,
        )
        self._sink.record([*spans, root])


_NOT_RECORDED = StartTrace()


def start_trace(sink: TraceSink | None, record: KernelRecord, clock: Clock) -> StartTrace:
    session = None if sink is None else parse_traceparent(record.spec.traceparent)
    has_started = record.ready or record.outcome is not None
    if sink is None or session is None or not session.is_sampled or has_started:
        return _NOT_RECORDED
    return RecordedStart(sink, session, record, clock)


def program_traceparent(sink: TraceSink | None, spec: KernelSpec) -> str:
    """The span that the program continues: the span of its kernel's start if the agent records it,
    otherwise the span of its session's start. Empty if the session is not traced."""
    session = None if sink is None else parse_traceparent(spec.traceparent)
    return (
        spec.traceparent if session is None else kernel_context(spec.kernel_id, session).traceparent
    )


def with_log_fields(
    spec: KernelSpec, run: Callable[[], Awaitable[None]]
) -> Callable[[], Awaitable[None]]:
    """``run``, this kernel's task, with fields that identify the kernel in the task's log lines."""
    session = parse_traceparent(spec.traceparent)
    subject = LogFields(
        trace_id="" if session is None else session.trace,
        session_id=spec.session_id,
        kernel_id=spec.kernel_id,
        endpoint=spec.served_name if spec.endpoint_id is not None else "",
    )
    return working_for(subject, run)
