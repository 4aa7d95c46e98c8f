"""Metrics of the proxy, in a registry of their own.

Labels hold model names of the route table, never user input.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

NO_MODEL = "-"
"""Label of requests that named no model of the table. It is not a valid model name."""

_DURATION = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=True)
        self._requests = Counter(
            "moorage_proxy_requests",
            "Requests by status code. Code 499: the client disconnected first.",
            ["model", "code"],
            registry=registry,
        )
        self._duration = Histogram(
            "moorage_proxy_request_duration_seconds",
            "Time from the request's head to the end of the response.",
            ["model"],
            buckets=_DURATION,
            registry=registry,
        )
        self._first_byte = Histogram(
            "moorage_proxy_time_to_first_byte_seconds",
            "Time from the request's head to the first byte of a replica's response.",
            buckets=_DURATION,
            registry=registry,
        )
        self._overhead = Histogram(
            "moorage_proxy_overhead_seconds",
            "Part of the time to first byte spent in the proxy and with replicas that failed.",
            buckets=_OVERHEAD,
            registry=registry,
        )
        self._in_flight = Gauge(
            "moorage_proxy_in_flight", "Requests in flight at replicas.", ["model"], registry=registry
        )
        self._failures = Counter(
            "moorage_proxy_upstream_failures",
            "Failed attempts at replicas, by kind.",
            ["model", "kind"],
            registry=registry,
        )
        self.feed_connected = Gauge(
            "moorage_proxy_feed_connected", "1 while the manager feeds routes, else 0.", registry=registry
        )
        self.table_generation = Gauge(
            "moorage_proxy_table_generation", "Generation of the route table in use.", registry=registry
        )

        self.credentials_age = Gauge(
            "moorage_proxy_credentials_age_seconds",
            "Time since a manager confirmed the credentials; 0 while connected.",
            registry=registry,
        )

        # Label values in use, by model: prometheus_client removes a series only by its full labels.
        self._codes: dict[str, set[str]] = {}
        self._kinds: dict[str, set[str]] = {}

    def record_request(self, model: str, code: int, duration_s: float) -> None:
        self._codes.setdefault(model, set()).add(str(code))
        self._requests.labels(model, str(code)).inc()
        self._duration.labels(model).observe(duration_s)

    def record_first_byte(self, after_s: float, overhead_s: float) -> None:
        self._first_byte.observe(after_s)
        self._overhead.observe(overhead_s)

    def set_in_flight(self, model: str, count: int) -> None:
        self._in_flight.labels(model).set(count)

    def record_upstream_failure(self, model: str, kind: str) -> None:
        self._kinds.setdefault(model, set()).add(kind)
        self._failures.labels(model, kind).inc()

    def remove_models(self, models: Iterable[str]) -> None:
        """Remove the series of models that no longer exist. Otherwise series would accumulate."""
        for model in models:
            for code in self._codes.pop(model, ()):
                self._requests.remove(model, code)
            for kind in self._kinds.pop(model, ()):
                self._failures.remove(model, kind)
            self._duration.remove(model)
            self._in_flight.remove(model)

    def text(self) -> bytes:
        """The registry in the Prometheus text format."""
        return generate_latest(self.registry)
