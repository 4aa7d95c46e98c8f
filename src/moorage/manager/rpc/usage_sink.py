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
        """Take a report. Must not block. False: nothing of it was taken."""
        ...


class NoUsage:
    """Accepts everything and keeps nothing."""

    is_full = False

    def take(self, report: UsageReport) -> bool:
        return True


NO_USAGE = NoUsage()
