"""Traces: spans as values, in the terms of OpenTelemetry, and their export. None of this runs while
tracing is off."""

from moorage.common.telemetry.spans import Span, SpanContext, TraceSink

__all__ = ["Span", "SpanContext", "TraceSink"]
