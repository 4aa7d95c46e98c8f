"""A clock for tests that use a real Postgres."""

from __future__ import annotations

from datetime import datetime

from moorage.common.aio.clock import ManualClock, SystemClock

# Zero means "never" in caches, so the clock starts at a time when the machine has been up for a
# while.
_UPTIME_S = 3600.0


class StoreClock(ManualClock):
    """Time passes only on request, so no cache entry, sweep or lease expires because the machine is
    busy. The wall clock, identifiers and secrets are the system's, because timestamps are compared
    with those of Postgres, and the rows of several stores must not collide.

    A test that ages a row does so in Postgres.
    """

    def __init__(self) -> None:
        super().__init__()
        self._system = SystemClock()
        self.advance(_UPTIME_S)

    def now(self) -> datetime:
        return self._system.now()

    def new_id(self) -> str:
        return self._system.new_id()

    def secret(self, nbytes: int = 24) -> str:
        return self._system.secret(nbytes)
