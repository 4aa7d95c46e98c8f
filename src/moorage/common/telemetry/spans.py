"""Spans as values, and the W3C Trace Context that carries them between processes. Pure.

A session's start is a span below the request that created it, or the first span of a trace whose id
is the session's UUID. The span's id is the second half of that UUID; for a kernel's start, it is
the second half of the kernel's UUID. So each process can derive the whole context from the stored
request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from moorage.common.model.ids import KernelId, SessionId

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_HALF: Final = (1 << 64) - 1
# OpenTelemetry's ratio-based sampling uses these bits, which W3C's level 2 requires to be random.
# They are random in a UUID of version 4 or 7.
_RANDOM: Final = 1 << 56

Kind: TypeAlias = Literal["INTERNAL", "SERVER", "CLIENT"]
Value: TypeAlias = str | bool | int | float
Sampler: TypeAlias = Literal[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
]


class SpanContext(NamedTuple):
    """The part of a span that is passed to other processes."""

    trace_id: int
    span_id: int
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.is_sampled else '00'}"

    @property
    def trace(self) -> str:
        """Trace id, as shown in logs."""
        return f"{self.trace_id:032x}"


class Span:
    """A span that has ended. ``start``, ``end``, and the times of ``events`` are in seconds on the
    clock passed to ``TraceSink.record``. ``parent_id``: 0 for none. ``error``: the error, "" for
    none. ``links``: spans of other traces that it belongs to."""

    __slots__ = (
        "attributes",
        "context",
        "end",
        "error",
        "events",
        "kind",
        "links",
        "name",
        "parent_id",
        "start",
    )

    def __init__(
        self,
        name: str,
        context: SpanContext,
        parent_id: int,
        start: float,
        *,
        end: float,
        attributes: Mapping[str, Value],
        kind: Kind = "INTERNAL",
        error: str = "",
        events: Sequence[tuple[str, float]] = (),
        links: Sequence[SpanContext] = (),
    ) -> None:
        self.name = name
        self.context = context
        self.parent_id = parent_id
        self.kind = kind
        self.start = start
        self.end = end
        self.attributes = attributes
        self.error = error
        self.events = events
        self.links = links


class TraceSink(Protocol):
    """A tracer's interface for code that creates spans. ``accepts_parents``: whether clients'
    traces are continued."""

    accepts_parents: bool

    def begin(self, parent: SpanContext | None) -> SpanContext:
        """Start a span below ``parent``, or the first span of a new trace."""
        ...

    def new_span_id(self) -> int: ...

    def is_sampled(self, trace_id: int) -> bool:
        """Whether a trace without a parent is recorded. All processes with the same settings
        agree."""
        ...

    def record(self, spans: Sequence[Span], now: float | None = None) -> None:
        """Record a span. ``now``: the current time on the spans' clock, None for Unix seconds.

        Never blocks; spans are dropped if too many wait for the collector."""
        ...


def parse_traceparent(value: str | None) -> SpanContext | None:
    """Parse a ``traceparent`` header. Returns None if it is absent or invalid, which has the same
    effect."""
    found = _TRACEPARENT.fullmatch(value.strip()) if value else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5] is not None):
        return None

    trace_id = int(found[2], 16)
    span_id = int(found[3], 16)
    return (
        SpanContext(trace_id, span_id, bool(int(found[4], 16) & 1))
        if trace_id and span_id
        else None
    )


def sampled_by_ratio(trace_id: int, ratio: float) -> bool:
    """Whether a trace belongs to the sample with this ``ratio``, by the random bits of its id."""
    return trace_id % _RANDOM >= round((1 - ratio) * _RANDOM)


def is_sampled(sampler: Sampler, ratio: float, trace_id: int, parent: SpanContext | None) -> bool:
    """Whether a trace is recorded. ``ratio`` applies to ratio-based samplers."""
    if parent is not None and sampler.startswith("parentbased_"):
        return parent.is_sampled
    root = sampler.removeprefix("parentbased_")
    return root == "always_on" or (root == "traceidratio" and sampled_by_ratio(trace_id, ratio))


def own_trace(session_id: SessionId, sink: TraceSink) -> SpanContext:
    """Context stored for a session that was not created by a traced request."""
    trace_id = _number(session_id)
    return SpanContext(trace_id, trace_id & _HALF, sink.is_sampled(trace_id))


def session_context(session_id: SessionId, stored: SpanContext) -> tuple[SpanContext, int]:
    """Context of the span of a session's start, and its parent's id, 0 for none. ``stored``: the
    context of the request that created it, or ``own_trace``."""
    span_id = _number(session_id) & _HALF
    return stored._replace(span_id=span_id), 0 if stored.span_id == span_id else stored.span_id


def kernel_context(kernel_id: KernelId, session: SpanContext) -> SpanContext:
    """Context of the span of a kernel's start, below its session's span."""
    return session._replace(span_id=_number(kernel_id) & _HALF)


def _number(uuid: str) -> int:
    return int(uuid.replace("-", ""), 16)
