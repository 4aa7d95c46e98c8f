"""The manager's Prometheus metrics, in a registry of their own. Labels are few and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        where = ["status", "resource_group"]
        self._sessions = Gauge("moorage_sessions", "Live sessions.", where, registry=self._registry)
        self._agents = Gauge("moorage_agents", "Known agents.", where, registry=self._registry)
        self._links = Gauge(
            "moorage_agent_links", "Agents attached to this manager.", registry=self._registry
        )
        self._passes = Histogram(
            "moorage_scheduler_pass_seconds",
            "Snapshot, plan and commit of one resource group.",
            registry=self._registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        )
        self._answers = Counter(
            "moorage_scheduler_sessions_total", "Answers of passes.", ["answer"], registry=self._registry
        )
        self._decided = Counter(
            "moorage_scheduler_decisions_total",
            "Passes that changed something, by what became of their record.",
            ["record"],
            registry=self._registry,
        )
        self._decided_bytes = Counter(
            "moorage_scheduler_decisions_bytes_total", "Bytes of decisions kept.", registry=self._registry
        )
        self._reports = Counter("moorage_agent_reports_total", "Reports taken in.", registry=self._registry)

        self._usage = Counter(
            "moorage_usage_reports_total",
            "Agents' statistics, by whether a newer one came before they were written.",
            ["outcome"],
            registry=self._registry,
        )
        group = ["resource_group"]
        self._used = {
            name: Gauge(f"moorage_used_{unit}", f"{what}, by all that runs.", group, registry=self._registry)
            for name, unit, what in (
                ("cpu", "processors", "Processors in use"),
                ("memory", "memory_bytes", "Memory in use"),
                ("gpu", "devices", "Busy devices"),
                ("gpu_memory", "device_memory_bytes", "Memory of devices in use"),
            )
        }
        self._drift = Gauge(
            "moorage_drift",
            "Rows that break a check of `moorage db check` and were not mended.",
            ["check"],
            registry=self._registry,
        )
        self._mended = Counter(
            "moorage_drift_mended_total",
            "Rows that the sweeper put right.",
            ["check"],
            registry=self._registry,
        )

    def pass_done(self, seconds: float, placed: int, held: int) -> None:
        self._passes.observe(seconds)
        self._answers.labels("placed").inc(placed)
        self._answers.labels("held").inc(held)

    def decisions_kept(self, passes: int, size: int) -> None:
        self._decided.labels("kept").inc(passes)
        self._decided_bytes.inc(size)

    def decisions_dropped(self, passes: int) -> None:
        self._decided.labels("dropped").inc(passes)

    def usage_taken(self, *, dropped: bool) -> None:
        """``dropped``: the one before was not written yet, and never will be."""
        self._usage.labels("dropped" if dropped else "kept").inc()

    def set_usage(self, totals: Iterable[tuple[str, Mapping[str, int]]]) -> None:
        """By resource group: ``cpu`` and ``gpu`` in 1/1000, memory in bytes."""
        for gauge in self._used.values():
            gauge.clear()
        for group, used in totals:
            for name, amount in used.items():
                self._used[name].labels(group).set(amount / 1000 if name in ("cpu", "gpu") else amount)

    def report_taken(self) -> None:
        self._reports.inc()

    def set_drift(self, found: Iterable[tuple[str, bool]]) -> None:
        """``found``: (check, mended) of every row that broke a check when it was last looked at."""
        self._drift.clear()
        for check, mended in found:
            if mended:
                self._mended.labels(check).inc()
            else:
                self._drift.labels(check).inc()

    def set_links(self, count: int) -> None:
        self._links.set(count)

    def set_counts(self, counts: Iterable[tuple[str, str, str, int]]) -> None:
        self._sessions.clear()
        self._agents.clear()
        for kind, status, group, n in counts:
            (self._sessions if kind == "session" else self._agents).labels(status, group).set(n)

    def render(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)
