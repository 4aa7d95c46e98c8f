"""Age of a part of the route table, the routes or the credentials: how long ago a manager last
confirmed it. Pure.

A proxy without its manager does not learn which keys were revoked. It honours those that it has for
a limited time only.
"""

from __future__ import annotations


class TableAge:
    """Times are monotonic seconds. ``max_age_s``: 0 for no limit. Until a call says otherwise, a
    manager is connected."""

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._confirmed_at: float | None = None

    def connected(self) -> None:
        """From now on a manager tells every change."""
        self._confirmed_at = None

    def disconnected(self, now: float) -> None:
        """No manager tells changes any more. Does nothing if none did before."""
        if self._confirmed_at is None:
            self._confirmed_at = now

    def confirmed(self, now: float, age_s: float) -> None:
        """A manager told the last change ``age_s`` ago, and tells none any more."""
        self._confirmed_at = now - max(0.0, age_s)

    def age_s(self, now: float) -> float:
        return 0.0 if self._confirmed_at is None else now - self._confirmed_at

    def is_exceeded(self, now: float) -> bool:
        """Whether it is too old to be used."""
        return self._confirmed_at is not None and 0 < self._max_age_s <= now - self._confirmed_at
