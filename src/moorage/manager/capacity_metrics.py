"""Prometheus metrics of resource groups' slots and of their sessions' waiting times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge, Histogram

from moorage.common.model.slots import JOBS, WHOLE_DEVICE

_UNITS = "Memory in bytes, CPUs and devices as numbers."


class CapacityMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("resource_group", "slot")
        self._slots = {
            name: Gauge(f"moorage_slots_{name}", f"{text} {_UNITS}", labels, registry=registry)
            for name, text in (
                ("offered", "Slots that the agents of a resource group offer."),
                ("unhealthy", "Offered slots of devices that are fenced."),
                ("allocated", "Slots that are allocated to kernels."),
            )
        }
        self._oldest = Gauge(
            "moorage_oldest_pending_seconds",
            "How long the longest-waiting session has been pending.",
            ("resource_group",),
            registry=registry,
        )
        self._wait_seconds = Histogram(
            "moorage_session_wait_seconds",
            "How long sessions were pending until they were placed.",
            ("resource_group",),
            registry=registry,
            buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400, 604_800),
        )

    def sessions_placed(self, group: str, waits_s: Iterable[float]) -> None:
        """Observe placements. ``waits_s``: how long each session was pending."""
        series = self._wait_seconds.labels(group)
        for wait_s in waits_s:
            series.observe(wait_s)

    def set_slots(self, rows: Iterable[tuple[str, str, Mapping[str, int]]]) -> None:
        """Set the slots. ``rows``: resource group, slot, and the offered, unhealthy and allocated
        amounts: memory in bytes, jobs as counts, and all others in thousandths."""
        for gauge in self._slots.values():
            gauge.clear()
        for group, slot, amounts in rows:
            base = 1 if slot in ("mem", JOBS) else WHOLE_DEVICE
            for name, gauge in self._slots.items():
                gauge.labels(group, slot).set(amounts[name] / base)

    def set_oldest_pending(self, seconds: Mapping[str, float]) -> None:
        """Set ``seconds``, how long the oldest pending session has waited, by resource group."""
        self._oldest.clear()
        for group, wait_s in seconds.items():
            self._oldest.labels(group).set(wait_s)
