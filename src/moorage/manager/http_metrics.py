"""Prometheus metrics of the REST API, by route. A path without a route has the label ``-``."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

NO_ROUTE = "-"
"""The label for requests whose path has no route. It is not a valid path."""


class HttpMetrics:
    """Streams, such as followed logs and events, are not observed: they last as long as a client
    wants."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "moorage_http_request_duration_seconds",
            "Duration of requests to the REST API. Streams and WebSockets are not counted.",
            ("method", "route", "code"),
            registry=registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )

    def observe(self, method: str, route: str, code: int, seconds: float) -> None:
        """Observe a request. ``route``: the route's path with the names of its parts, such as
        ``/v1/sessions/{ref}``."""
        self._seconds.labels(method, route, str(code)).observe(seconds)
