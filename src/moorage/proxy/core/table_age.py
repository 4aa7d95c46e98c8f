"""Age of a part of the route table (routes or credentials): the time since a manager last confirmed
it. Pure.

A proxy without its manager does not learn which keys were revoked, so it accepts the keys it knows
only for a limited time.
"""

from __future__ import annotations


class TableAge:
    """The age of a part. Times are monotonic seconds. ``max_age_s``: 0 means no limit. Initially, a
    manager counts as connected."""

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._confirmed_at: float | None = None

    def connected(self) -> None:
        """Record that a manager will report every change from now on."""
        self._confirmed_at = None

    def disconnected(self, now: float) -> None:
        """Record that no manager reports changes any more. Does nothing if none did before."""
        if self._confirmed_at is None:
            self._confirmed_at = now

    def confirmed(self, now: float, age_s: float) -> None:
        """Record that a manager reported the last change ``age_s`` ago and reports no more."""
        self._confirmed_at = now - max(0.0, age_s)

    def age_s(self, now: float) -> float:
        return 0.0 if self._confirmed_at is None else now - self._confirmed_at

    def is_exceeded(self, now: float) -> bool:
        """Whether the part is too old to be used."""
        return self._confirmed_at is not None and 0 < self._max_age_s <= now - self._confirmed_at
