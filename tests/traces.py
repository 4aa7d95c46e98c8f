"""Traces in tests: a sink that keeps spans, and a collector that receives and parses OTLP over
HTTP."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from moorage.common.telemetry.spans import Sampler, Span, SpanContext, is_sampled

SESSION = "01a1fe3c-5331-77ad-8599-a7c43705bf82"


class Kept:
    """A ``TraceSink`` that keeps the spans that it receives. Ids count up."""

    def __init__(
        self, sampler: Sampler = "parentbased_always_on", *, accepts_parents: bool = True
    ) -> None:
        self.spans: list[Span] = []
        self.accepts_parents = accepts_parents
        self._sampler = sampler
        self._last = 0

    def begin(self, parent: SpanContext | None) -> SpanContext:
        trace_id = self.new_span_id() if parent is None else parent.trace_id
        sampled = is_sampled(self._sampler, 1, trace_id, parent)
        return SpanContext(trace_id, self.new_span_id(), sampled)

    def new_span_id(self) -> int:
        self._last += 1
        return self._last

    def is_sampled(self, trace_id: int) -> bool:
        return is_sampled(self._sampler, 1, trace_id, None)

    def record(self, spans: Sequence[Span], now: float | None = None) -> None:
        self.spans += spans


class Collector:
    """An OpenTelemetry collector on loopback, and a context manager. ``url``: its endpoint. It
    responds while ``goes_on`` is set."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.goes_on = threading.Event()
        self.goes_on.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.goes_on.wait(60)
                if (
                    self.path == "/v1/traces"
                    and self.headers["Content-Type"] == "application/x-protobuf"
                ):
                    collector.headers.append(
                        {name.lower(): value for name, value in self.headers.items()}
                    )
                    collector.requests.append(ExportTraceServiceRequest.FromString(body))
                    self.send_response(200)
                else:
                    self.send_response(404)

                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Collector:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.goes_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spans(self) -> list[tuple[str, trace_pb2.Span]]:
        """The spans that have arrived, each with the component that sent it."""
        found = []
        for request in list(self.requests):
            for group in request.resource_spans:
                resource = attributes(group.resource.attributes)
                found += [
                    (resource["moorage.component"], span)
                    for scope in group.scope_spans
                    for span in scope.spans
                ]

        return found


def attributes(pairs: object) -> dict[str, str]:
    found = {}
    for pair in pairs:  # type: ignore[attr-defined]
        kind = pair.value.WhichOneof("value")
        found[pair.key] = str(getattr(pair.value, kind))
    return found
