"""Usage sink: where agents' usage reports go, and whether more are wanted."""

from __future__ import annotations

from typing import Protocol

from moorage.common.model.resource_usage import UsageReport


class UsageSink(Protocol):
    @property
    def is_full(self) -> bool:
        """Agents shall hold their usage."""
        ...

    def take(self, report: UsageReport) -> bool:
        """Must not block. False: nothing of it was taken."""
        ...


class NoUsage:
    """Takes everything and keeps nothing."""

    is_full = False

    def take(self, report: UsageReport) -> bool:
        return True


NO_USAGE = NoUsage()
