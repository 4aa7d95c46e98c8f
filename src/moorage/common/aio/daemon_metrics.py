"""Prometheus metrics common to all daemons: build, process and background tasks."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moorage import __version__
from moorage.common.aio import supervisor
from moorage.common.aio.pauses import PAUSED
from moorage.common.aio.tasks import FAILURES


def daemon_registry(component: str) -> CollectorRegistry:
    """Create a registry with the common metrics. ``component``: manager, agent or proxy.

    Several components in one process have separate registries, and each includes the process
    metrics.
    """
    registry = CollectorRegistry(auto_describe=True)
    build = Info("moorage_build", "Version of Moorage and of Python.", registry=registry)
    build.info(
        {"component": component, "version": __version__, "python": platform.python_version()}
    )
    ProcessCollector(registry=registry)
    registry.register(_TaskCollector())

    return registry


class _TaskCollector(Collector):
    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        failures = CounterMetricFamily(
            "moorage_task_failures",
            "Failures of background tasks in this process. Supervised tasks are restarted after "
            "each.",
            labels=["task"],
        )
        for name, count in FAILURES.items():
            failures.add_metric([name], count)

        failing = GaugeMetricFamily(
            "moorage_task_failing", "1 for a task that fails repeatedly or hangs.", labels=["task"]
        )
        for name in supervisor.problems():
            failing.add_metric([name], 1)

        paused = CounterMetricFamily(
            "moorage_pause_seconds",
            "Seconds of pauses under load, by what came before.",
            labels=["after"],
        )
        for name, seconds in PAUSED.items():
            paused.add_metric([name], seconds)

        return [failures, failing, paused]
