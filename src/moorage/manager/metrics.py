"""Prometheus metrics of the manager, in a separate registry. Every label has few, bounded
values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from moorage.common.aio.daemon_metrics import daemon_registry
from moorage.manager.capacity_metrics import CapacityMetrics
from moorage.manager.http_metrics import HttpMetrics
from moorage.manager.ledger_metrics import LedgerMetrics


class ManagerMetrics:
    def __init__(self) -> None:
        registry = daemon_registry("manager")
        self._registry = registry

        def gauge(name: str, description: str, *labels: str) -> Gauge:
            return Gauge(name, description, labels, registry=registry)

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(name, description, labels, registry=registry)

        by_status = ("status", "resource_group")
        self._sessions = gauge(
            "moorage_sessions", "Sessions that have not ended, by status.", *by_status
        )
        self._agents = gauge("moorage_agents", "Registered agents, by status.", *by_status)
        self._held_losses = gauge(
            "moorage_agents_held",
            "Silent agents that do not become LOST because too many agents of their group are "
            "silent at the same time.",
            "resource_group",
        )
        self._leader, self._terms, self._managers = _leadership(registry)
        self.capacity = CapacityMetrics(registry)
        self.http = HttpMetrics(registry)
        self.ledger = LedgerMetrics()
        self._unreadable = _unreadable_rows(registry)
        self._links = gauge("moorage_agent_links", "Agents connected to this manager.")
        self._heartbeat = _heartbeat_interval(registry)
        self._doubtful = _doubtful_jobs(registry)
        self._reports = counter("moorage_agent_reports_total", "Reports applied.")
        self._pass_seconds = Histogram(
            "moorage_scheduler_pass_seconds",
            "Duration of a scheduler pass over one resource group: snapshot, plan and commit.",
            registry=registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        )
        self._outcomes = counter(
            "moorage_scheduler_sessions_total",
            "Sessions considered by scheduler passes, by outcome.",
            "outcome",
        )
        text = "Scheduler passes with a decision, by whether their record was kept or dropped."
        self._decisions = counter("moorage_scheduler_decisions_total", text, "record")
        self._decision_bytes = counter(
            "moorage_scheduler_decisions_bytes_total",
            "Size of the decision records that were kept.",
        )
        self._usage = counter(
            "moorage_usage_reports_total",
            "Usage reports of agents; dropped: superseded before it was written, or refused.",
            "outcome",
        )
        self._used = {
            name: gauge(f"moorage_used_{unit}", f"{what} by all running kernels.", "resource_group")
            for name, unit, what in (
                ("cpu", "processors", "CPUs used"),
                ("memory", "memory_bytes", "Memory used"),
                ("gpu", "devices", "GPUs used (sum of utilization)"),
                ("gpu_memory", "device_memory_bytes", "GPU memory used"),
            )
        }
        self._drift = gauge(
            "moorage_drift",
            "Rows that violate a check of `moorage db check` and were not repaired.",
            "check",
        )
        self._repaired = counter(
            "moorage_drift_repaired_total", "Rows that the garbage collector repaired.", "check"
        )
        self._start_errors = _start_errors(registry)
        self._scalings = _scalings(registry)

    def set_start_errors(self, errors: Iterable[tuple[str, str, float, float]]) -> None:
        """Set ``errors``: resource group, kind, and the errors at p50 and p90 in seconds."""
        self._start_errors.clear()
        for group, kind, p50, p90 in errors:
            self._start_errors.labels(group, kind, "0.5").set(p50)
            self._start_errors.labels(group, kind, "0.9").set(p90)

    def pass_finished(self, seconds: float, placed: int, held: int) -> None:
        self._pass_seconds.observe(seconds)
        self._outcomes.labels("placed").inc(placed)
        self._outcomes.labels("held").inc(held)

    def show_leader(self, is_leader: Callable[[], bool]) -> None:
        """The source of the leader's state, read when metrics are requested."""
        self._leader.set_function(lambda: float(is_leader()))

    def term_begun(self) -> None:
        self._terms.inc()

    def set_managers(self, count: int) -> None:
        self._managers.set(count)

    def decisions_kept(self, passes: int, size: int) -> None:
        self._decisions.labels("kept").inc(passes)
        self._decision_bytes.inc(size)

    def decisions_dropped(self, passes: int) -> None:
        self._decisions.labels("dropped").inc(passes)

    def usage_received(self, *, dropped: bool) -> None:
        """Count a usage report. ``dropped``: the report superseded one that had not been written
        yet, or was refused."""
        self._usage.labels("dropped" if dropped else "kept").inc()

    def set_usage(self, totals: Iterable[tuple[str, Mapping[str, int]]]) -> None:
        """Set the usage by resource group: ``cpu`` and ``gpu`` in thousandths, memory in bytes."""
        for gauge in self._used.values():
            gauge.clear()
        for group, used in totals:
            for name, amount in used.items():
                self._used[name].labels(group).set(
                    amount / 1000 if name in ("cpu", "gpu") else amount
                )

    def scaled(self, rule: str) -> None:
        self._scalings.labels(rule).inc()

    def report_applied(self) -> None:
        self._reports.inc()

    def drift_repaired(self, check: str) -> None:
        self._repaired.labels(check).inc()

    def set_drift(self, found: Mapping[str, int]) -> None:
        """Set ``found``: the number of rows that violate a check and were not repaired, by
        check."""
        self._drift.clear()
        for check, rows in found.items():
            self._drift.labels(check).set(rows)

    def set_unreadable(self, counts: Mapping[str, int]) -> None:
        """Set ``counts``: the number of rows that this manager has recently left out, by kind."""
        self._unreadable.clear()
        for kind, count in counts.items():
            self._unreadable.labels(kind).set(count)

    def set_links(self, count: int) -> None:
        self._links.set(count)

    def set_heartbeat_interval(self, seconds: float) -> None:
        self._heartbeat.set(seconds)

    def set_held_losses(self, held: Mapping[str, int]) -> None:
        """Set ``held``: the number of silent agents that would otherwise be LOST, by resource
        group."""
        self._held_losses.clear()
        for group, count in held.items():
            self._held_losses.labels(group).set(count)

    def set_counts(self, counts: Iterable[tuple[str, str, str, int]]) -> None:
        self._sessions.clear()
        self._agents.clear()
        self._doubtful.clear()
        for kind, status, group, n in counts:
            if kind == "doubtful-job":
                self._doubtful.labels(group).set(n)
                continue
            (self._sessions if kind == "session" else self._agents).labels(status, group).set(n)

    def render(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)


def _leadership(registry: CollectorRegistry) -> tuple[Gauge, Counter, Gauge]:
    return (
        Gauge(
            "moorage_manager_leader",
            "1 while this manager is the leader, else 0.",
            registry=registry,
        ),
        Counter(
            "moorage_manager_terms_total",
            "Terms that this manager has begun as the leader.",
            registry=registry,
        ),
        Gauge(
            "moorage_managers",
            "Live managers of the database.",
            registry=registry,
        ),
    )


def _unreadable_rows(registry: CollectorRegistry) -> Gauge:
    return Gauge(
        "moorage_unreadable_rows",
        "Rows that need a newer manager and that this one leaves out, by kind.",
        ["kind"],
        registry=registry,
    )


def _doubtful_jobs(registry: CollectorRegistry) -> Gauge:
    return Gauge(
        "moorage_doubtful_jobs",
        "Jobs of agents for which a site may bill although no kernel is known to run in them.",
        ["resource_group"],
        registry=registry,
    )


def _heartbeat_interval(registry: CollectorRegistry) -> Gauge:
    return Gauge(
        "moorage_agent_heartbeat_interval_seconds",
        "Longest pause between two reports that this manager requests from its agents; 0 means "
        "their own setting.",
        registry=registry,
    )


def _start_errors(registry: CollectorRegistry) -> Gauge:
    return Gauge(
        "moorage_expected_start_error_seconds",
        "Error of the latest expected starts, by kind of estimate and quantile.",
        ("resource_group", "kind", "quantile"),
        registry=registry,
    )


def _scalings(registry: CollectorRegistry) -> Counter:
    return Counter(
        "moorage_endpoint_scalings_total",
        "Changes of the desired number of replicas by autoscaling.",
        ("rule",),
        registry=registry,
    )
