"""Tracer: samples traces, and passes their spans to the exporter, which sends them from a separate
thread.

The SDK's exporter and bounded queue are used, but not its tracer, because spans are created with
our own ids from known data, most of them after the fact (decision 51).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.telemetry.spans import Sampler, Span, SpanContext, is_sampled

if TYPE_CHECKING:
    from moorage.common.telemetry.otlp import SpanQueue

# How long a process waits on exit for its last spans to be sent.
CLOSE_S = 3.0

log = structlog.get_logger("moorage.telemetry")


class Tracer:
    """``TraceSink`` of one component. An async context manager: leaving it sends the waiting
    spans."""

    def __init__(
        self,
        queue: SpanQueue,
        clock: Clock,
        *,
        sampler: Sampler = "parentbased_always_on",
        ratio: float = 1.0,
        accepts_parents: bool = True,
    ) -> None:
        self.accepts_parents = accepts_parents
        self._queue = queue
        self._clock = clock
        self._sampler = sampler
        self._ratio = ratio
        self._bits = Random(clock.secret()).getrandbits

    async def __aenter__(self) -> Tracer:
        return self

    async def __aexit__(self, *exc: object) -> None:
        # Use a thread that does not keep the process alive, because a collector may not respond at
        # all.
        closing = threading.Thread(target=self._queue.close, name="telemetry.close", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_S)

    def begin(self, parent: SpanContext | None) -> SpanContext:
        trace_id = parent.trace_id if parent is not None else self._bits(128) or 1
        sampled = is_sampled(self._sampler, self._ratio, trace_id, parent)
        return SpanContext(trace_id, self.new_span_id(), sampled)

    def new_span_id(self) -> int:
        return self._bits(64) or 1

    def is_sampled(self, trace_id: int) -> bool:
        return is_sampled(self._sampler, self._ratio, trace_id, None)

    def record(self, spans: Sequence[Span], now: float | None = None) -> None:
        offset_s = 0.0 if now is None else self._clock.now().timestamp() - now
        for span in spans:
            if span.context.is_sampled:
                self._queue.put(span, offset_s)
