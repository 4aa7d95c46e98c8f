"""Prometheus metrics of the background tasks of this process, and of their pauses."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from moorage.common.aio import supervisor
from moorage.common.aio.pauses import PAUSED
from moorage.common.aio.tasks import FAILURES


class TaskCollector(Collector):
    """Register it in the registry of a component."""

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        failures = CounterMetricFamily(
            "moorage_task_failures",
            "Failures of background tasks in this process. Supervised tasks are restarted after each.",
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
            "moorage_pause_seconds", "Seconds of pauses under load, by what came before.", labels=["after"]
        )
        for name, seconds in PAUSED.items():
            paused.add_metric([name], seconds)
        return [failures, failing, paused]
