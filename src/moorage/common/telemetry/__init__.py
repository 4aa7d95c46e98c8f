"""Traces: spans as values, in the terms of OpenTelemetry, and their export. Nothing of it runs
while off."""

from moorage.common.telemetry.spans import Span, SpanContext, TraceSink

__all__ = ["Span", "SpanContext", "TraceSink"]
