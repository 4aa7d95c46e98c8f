"""Metrics of the proxy, in a separate registry.

Labels contain model names from the route table, never user input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from moorage.proxy.core.activity import ModelActivity
from moorage.proxy.core.histogram import Histogram

NO_MODEL = "-"
"""Label for requests without a model from the table. It is not a valid model name."""

_DURATION = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class _Model:
    """The series of one model."""

    __slots__ = ("codes", "duration")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.duration = Histogram(_DURATION)


class _Requests(Collector):
    """Counters that each request changes. The counters in ``prometheus_client`` cost more than
    relaying a request."""

    def __init__(self) -> None:
        self.models: dict[str, _Model] = {}
        self.in_flight: Mapping[str, int] = {}
        self.waiting: Callable[[], Mapping[str, int]] = dict
        self.activity: Mapping[str, ModelActivity] = {}
        self.first_byte = Histogram(_DURATION)
        self.overhead = Histogram(_OVERHEAD)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "moorage_proxy_requests",
            "Requests by status code. Code 499: the client disconnected first.",
            labels=["model", "code"],
        )
        duration = HistogramMetricFamily(
            "moorage_proxy_request_duration_seconds",
            "Time from the request's head to the end of the response.",
            labels=["model"],
        )
        in_flight = GaugeMetricFamily(
            "moorage_proxy_in_flight", "Requests in flight at replicas.", labels=["model"]
        )

        for name, model in self.models.items():
            for code, count in model.codes.items():
                requests.add_metric([name, str(code)], count)
            _add(duration, [name], model.duration)

        for name in self.models.keys() | self.in_flight.keys():
            if name != NO_MODEL:
                in_flight.add_metric([name], self.in_flight.get(name, 0))

        first_byte = HistogramMetricFamily(
            "moorage_proxy_time_to_first_byte_seconds",
            "Time from the request's head to the first byte of a replica's response.",
        )
        _add(first_byte, [], self.first_byte)
        overhead = HistogramMetricFamily(
            "moorage_proxy_overhead_seconds",
            "Part of the time to first byte spent in the proxy and with replicas that failed.",
        )
        _add(overhead, [], self.overhead)
        waiting = GaugeMetricFamily(
            "moorage_proxy_waiting", "Requests that wait for a replica.", labels=["model"]
        )
        for name, count in self.waiting().items():
            waiting.add_metric([name], count)

        yield from (requests, duration, first_byte, overhead, in_flight, waiting, *self._answers())

    def _answers(self) -> Iterator[Metric]:
        tokens = CounterMetricFamily(
            "moorage_proxy_tokens",
            "Tokens of answered requests, with proxy.metering. cached: those of `in` that a cache "
            "had.",
            labels=["model", "direction"],
        )
        first_token = HistogramMetricFamily(
            "moorage_proxy_time_to_first_token_seconds",
            "Time from the request to the first byte of a stream, with proxy.metering.",
            labels=["model"],
        )
        for name, activity in self.activity.items():
            if name not in self.models:
                continue  # the model is gone, or none of its requests has ended yet

            tokens.add_metric([name, "in"], activity.tokens_in)
            tokens.add_metric([name, "out"], activity.tokens_out)
            tokens.add_metric([name, "cached"], activity.tokens_cached)
            _add(first_token, [name], activity.first_token)

        yield from (tokens, first_token)


def _add(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    names = [*(str(float(bound)) for bound in histogram.bounds), "+Inf"]
    buckets = list(zip(names, accumulate(histogram.counts), strict=True))
    family.add_metric(labels, buckets, histogram.total)


class ProxyMetrics:
    """The metrics. ``registry``: contains them and the metrics that every daemon has."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = registry or CollectorRegistry(auto_describe=True)
        self.registry = registry
        self._hot = _Requests()
        registry.register(self._hot)
        self._failures = Counter(
            "moorage_proxy_upstream_failures",
            "Failed attempts at replicas, by kind.",
            ["model", "kind"],
            registry=registry,
        )
        self._fallbacks = Counter(
            "moorage_proxy_fallbacks",
            "Requests sent to a fallback of their model, by the model there.",
            ["model", "to"],
            registry=registry,
        )
        self.feed_connected = Gauge(
            "moorage_proxy_feed_connected",
            "1 while the manager feeds routes, else 0.",
            registry=registry,
        )
        self.table_generation = Gauge(
            "moorage_proxy_table_generation",
            "Generation of the route table in use.",
            registry=registry,
        )
        self.credentials_age = Gauge(
            "moorage_proxy_credentials_age_seconds",
            "Time since a manager confirmed the credentials; 0 while connected.",
            registry=registry,
        )
        self.table_age = Gauge(
            "moorage_proxy_table_age_seconds",
            "Time since a manager confirmed the route table; 0 while connected.",
            registry=registry,
        )

        # Label values in use, by model, because prometheus_client removes a series only by its
        # complete labels.
        self._kinds: dict[str, set[str]] = {}
        self._to: dict[str, set[str]] = {}

    def record_request(self, model: str, code: int, duration_s: float) -> None:
        series = self._hot.models.get(model)
        if series is None:
            series = self._hot.models[model] = _Model()
        series.codes[code] = series.codes.get(code, 0) + 1
        series.duration.observe(duration_s)

    def errors(self, model: str) -> int:
        """The number of responses for a model with a status of 500 or more."""
        series = self._hot.models.get(model)
        if series is None:
            return 0
        return sum(count for code, count in series.codes.items() if code >= 500)

    def record_first_byte(self, after_s: float, overhead_s: float) -> None:
        self._hot.first_byte.observe(after_s)
        self._hot.overhead.observe(overhead_s)

    def show_requests(
        self, in_flight: Mapping[str, int], waiting: Callable[[], Mapping[str, int]]
    ) -> None:
        """Let the metrics read in-flight and waiting requests by model, on demand."""
        self._hot.in_flight = in_flight
        self._hot.waiting = waiting

    def show_activity(self, models: Mapping[str, ModelActivity]) -> None:
        """Let the metrics read tokens and times to first token, on demand."""
        self._hot.activity = models

    def record_upstream_failure(self, model: str, kind: str) -> None:
        self._kinds.setdefault(model, set()).add(kind)
        self._failures.labels(model, kind).inc()

    def record_fallback(self, model: str, to: str) -> None:
        self._to.setdefault(model, set()).add(to)
        self._fallbacks.labels(model, to).inc()

    def remove_models(self, models: Iterable[str]) -> None:
        """Remove the series of models that no longer exist, which would otherwise accumulate."""
        for model in models:
            self._hot.models.pop(model, None)
            for kind in self._kinds.pop(model, ()):
                self._failures.remove(model, kind)
            for to in self._to.pop(model, ()):
                self._fallbacks.remove(model, to)

    def text(self) -> bytes:
        """The registry in the Prometheus text format."""
        return generate_latest(self.registry)
