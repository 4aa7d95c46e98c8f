"""Usage sink: receives agents' usage reports, and decides whether more are wanted."""

from __future__ import annotations

from typing import Protocol

from moorage.common.model.resource_usage import UsageReport


class UsageSink(Protocol):
    @property
    def is_full(self) -> bool:
        """Whether agents should hold their usage."""
        ...

    def take(self, report: UsageReport) -> bool:
        """Accept a report. Must not block. Returns False if no part of it was accepted."""
        ...


class NoUsage:
    """Accepts all reports and keeps none."""

    is_full = False

    def take(self, report: UsageReport) -> bool:
        return True


NO_USAGE = NoUsage()
