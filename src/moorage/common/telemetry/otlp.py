"""OTLP span export: the SDK's bounded queue and its HTTP exporter.

Imported only if tracing is on, because the SDK and its exporter need 30 MB. Everything not set here
follows the standard variables, which the SDK reads: OTEL_BSP_*, OTEL_EXPORTER_OTLP_TIMEOUT,
_CERTIFICATE, _COMPRESSION, OTEL_RESOURCE_ATTRIBUTES.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, TraceFlags
from opentelemetry.trace import SpanContext as OtelContext
from opentelemetry.trace.status import Status, StatusCode

from moorage.common.telemetry.spans import Span, SpanContext

_SCOPE = InstrumentationScope("moorage")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_KINDS = {"INTERNAL": SpanKind.INTERNAL, "SERVER": SpanKind.SERVER, "CLIENT": SpanKind.CLIENT}
_UNSET = Status(StatusCode.UNSET)


class SpanQueue:
    """Spans waiting to be sent, at most 2048 (OTEL_BSP_MAX_QUEUE_SIZE); further spans are dropped.

    ``endpoint``: the OTLP/HTTP URL for traces. ``resource``: attributes of this process; those in
    OTEL_RESOURCE_ATTRIBUTES are added. ``headers``: the headers of each request to the collector.
    """

    def __init__(
        self, endpoint: str, resource: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        self._resource = Resource.create({name: value for name, value in resource.items() if value})
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint, headers=dict(headers) or None)
        )

    def put(self, span: Span, offset_s: float) -> None:
        """Queue a span. ``offset_s``: difference between Unix seconds and the span's times. Never
        blocks."""
        context = span.context
        parent_id = span.parent_id
        error = span.error

        self._processor.on_end(
            ReadableSpan(
                span.name,
                _context(context, context.span_id),
                parent=_context(context, parent_id) if parent_id else None,
                resource=self._resource,
                attributes=span.attributes,
                events=[
                    Event(name, timestamp=_nanoseconds(at + offset_s)) for name, at in span.events
                ],
                links=[Link(_context(link, link.span_id)) for link in span.links],
                kind=_KINDS[span.kind],
                status=Status(StatusCode.ERROR, error) if error else _UNSET,
                start_time=_nanoseconds(span.start + offset_s),
                end_time=_nanoseconds(span.end + offset_s),
                instrumentation_scope=_SCOPE,
            )
        )

    def close(self) -> None:
        """Send the waiting spans, as far as the collector accepts them."""
        self._processor.shutdown()


def _context(context: SpanContext, span_id: int) -> OtelContext:
    return OtelContext(context.trace_id, span_id, is_remote=False, trace_flags=_SAMPLED)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
