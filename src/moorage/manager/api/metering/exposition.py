"""Prometheus exposition of endpoints and their replicas, from their views. Pure.

A replica whose engine cannot be reached is loading, with zeros. The series of a deleted resource
disappear by themselves, because no state is kept between calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moorage.common.model.status import EndpointStatus
from moorage.common.views.endpoints import EndpointView

REPLICA_STATES = ("queued", "loading", "ready", "busy", "draining")


def exposition(views: Iterable[EndpointView]) -> bytes:
    """Render the metrics in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Endpoints(list(views)))
    return generate_latest(registry)


class _Endpoints(Collector):
    def __init__(self, views: Sequence[EndpointView]) -> None:
        self._views = views

    def collect(self) -> Iterator[Metric]:
        status = _gauge("status", "1 for the current status of the endpoint, else 0.", "status")
        desired = _gauge("replicas_desired", "Desired number of replicas.")
        ready = _gauge("replicas_ready", "Replicas that are ready.")
        replicas = _gauge("replicas", "Live replicas, by state.", "state")
        waiting = _gauge(
            "waiting_requests",
            "Requests that wait in the engines, and requests that proxies hold for a replica.",
        )
        late = _gauge(
            "successor_late",
            "1 if a walltime ends before a successor is expected to be ready, else 0.",
        )
        scalings = CounterMetricFamily(
            "moorage_endpoint_scaling_decisions",
            "Changes to the desired number of replicas by autoscaling.",
            labels=["model"],
        )
        for view in self._views:
            for endpointstatu in EndpointStatus:
                status.add_metric([view.name, endpointstatu], view.status is endpointstatu)

            desired.add_metric([view.name], view.replicas)
            ready.add_metric([view.name], view.ready)
            waiting.add_metric([view.name], view.waiting)
            scalings.add_metric([view.name], view.scalings)
            late.add_metric([view.name], view.late_successor is not None)
            states = Counter(replica.state for replica in view.sessions)
            for state in REPLICA_STATES if view.sessions else ():
                replicas.add_metric([view.name, state], states[state])

        yield from (status, desired, ready, replicas, waiting, late, scalings, *self._loads())

    def _loads(self) -> Iterator[Metric]:
        running = _gauge("replica_running_requests", "Requests that run in the engine.", "replica")
        waiting = _gauge("replica_waiting_requests", "Requests that wait in the engine.", "replica")
        kv_cache = _gauge("replica_kv_cache_usage_ratio", "Use of the KV cache, 0 to 1.", "replica")
        for view in self._views:
            for replica in view.sessions:
                if replica.state:
                    labels = [view.name, replica.name]
                    running.add_metric(labels, replica.running)
                    waiting.add_metric(labels, replica.waiting)
                    kv_cache.add_metric(labels, replica.kv_cache or 0)

        yield from (running, waiting, kv_cache)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"moorage_endpoint_{name}", text, labels=["model", *labels])
