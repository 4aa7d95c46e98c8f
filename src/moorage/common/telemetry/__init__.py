"""Traces: spans as values, in OpenTelemetry's terms, and their export. None of this runs while
tracing is off."""

from moorage.common.telemetry.spans import Span, SpanContext, TraceSink

__all__ = ["Span", "SpanContext", "TraceSink"]
