"""Prometheus metrics of the ledger: usage by project, and used shares of budgets.

They contain tenant names, which not everyone who can reach the manager may read, so they are not
part of its ``/metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from moorage.common.views.metering import ModelUsage

_MS = 1000
_MILLIONTHS = 1_000_000


class LedgerMetrics:
    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        today = "by a project since midnight (UTC)"
        self._requests = gauge(
            "moorage_ledger_requests", f"Requests for models {today}.", "project"
        )
        self._tokens = gauge(
            "moorage_ledger_tokens",
            f"Tokens used {today}; cached: the part of in.",
            "project",
            "kind",
        )
        self._gpu = gauge("moorage_ledger_gpu_seconds", f"GPU time used {today}.", "project")
        self._cpu = gauge("moorage_ledger_cpu_seconds", f"CPU time allocated {today}.", "project")
        self._cost = gauge("moorage_ledger_cost", f"Cost of usage {today}.", "project")
        self._budgets = gauge(
            "moorage_budget_used_ratio",
            "Used share of a budget in its period, relative to its hard limit, or to its soft "
            "limit if it has no hard one.",
            "scope",
            "name",
            "unit",
            "period",
        )

    def render(self) -> bytes:
        """Render in the Prometheus text format."""
        return generate_latest(self._registry)

    def set_used(self, projects: Iterable[ModelUsage]) -> None:
        """Set ``projects``: today's usage, split by project."""
        for gauge in (self._requests, self._tokens, self._gpu, self._cpu, self._cost):
            gauge.clear()

        for usage in projects:
            project = usage.project or ""
            self._requests.labels(project).set(usage.requests)
            for kind, tokens in (
                ("in", usage.tokens_in),
                ("out", usage.tokens_out),
                ("cached", usage.tokens_cached),
            ):
                self._tokens.labels(project, kind).set(tokens)

            self._gpu.labels(project).set(usage.gpu_ms / _MS)
            self._cpu.labels(project).set(usage.cpu_ms / _MS)
            self._cost.labels(project).set(usage.cost / _MILLIONTHS)

    def set_budgets(self, budgets: Iterable[tuple[tuple[str, str, str, str], float]]) -> None:
        """Set ``budgets``: scope, name, unit and period, and the used share."""
        self._budgets.clear()
        for labels, ratio in budgets:
            self._budgets.labels(*labels).set(ratio)
