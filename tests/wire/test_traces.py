"""Trace export: how much a slow or absent collector costs the process."""

from __future__ import annotations

import pytest
from tests.traces import Collector

from moorage.common.aio.clock import SystemClock
from moorage.common.config.telemetry_settings import TelemetrySettings
from moorage.common.telemetry import Span, SpanContext
from moorage.server.tracing import tracer_for

SPANS = 2_000
QUEUE = 20
BATCH = 10


async def test_a_collector_that_is_stuck_does_not_grow_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", str(QUEUE))
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(BATCH))
    with Collector() as collector:
        collector.goes_on.clear()
        tracer = tracer_for(TelemetrySettings(endpoint=collector.url), "proxy", SystemClock())
        assert tracer is not None

        async with tracer:
            for number in range(1, SPANS + 1):
                tracer.record([Span("s", SpanContext(1, number, True), 0, 1, end=2, attributes={})])
            collector.goes_on.set()

        received = len(collector.spans())

    # The batches in progress and the waiting ones. The thread may have taken more than one batch
    # before it got stuck.
    assert 0 < received <= QUEUE + 2 * BATCH


async def test_a_process_ends_although_its_collector_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moorage.common.telemetry.tracer.CLOSE_S", 0.05)
    with Collector() as collector:
        collector.goes_on.clear()
        tracer = tracer_for(TelemetrySettings(endpoint=collector.url), "proxy", SystemClock())
        assert tracer is not None
        async with tracer:
            tracer.record([Span("s", SpanContext(1, 1, True), 0, 1, end=2, attributes={})])

        assert not collector.requests, "it was left while the collector still held the request"
