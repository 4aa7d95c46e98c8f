"""Clock of tests that use a real Postgres."""

from __future__ import annotations

from datetime import datetime

from moorage.common.aio.clock import ManualClock, SystemClock

# Zero stands for "never" in caches: a machine has run for a while before anything is cached.
_UPTIME_S = 3600.0


class StoreClock(ManualClock):
    """Durations pass on request only: no cache, sweep or lease ends because a machine is busy. The
    wall clock, identifiers and secrets are the system's, for timestamps are compared with those of
    Postgres, and the rows of several stores must not collide.

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
