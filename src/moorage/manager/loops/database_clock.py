"""Deadline clock: the database's time as far as this manager trusts it, and whether passed
deadlines apply.

The loop tracks the database's clock with the monotonic clock. After a jump forward, time continues
as if there had been no jump, until the leader has moved all deadlines by the length of the jump.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.status import Status
from moorage.manager.lifecycle.clock_jumps import Reading, deadline_counts, forward_jump_s
from moorage.manager.store import Store

log = structlog.get_logger("moorage.clock")

INTERVAL_S = 2.0


class DatabaseClock:
    """``leading``: this manager's term, or None while it does not lead."""

    def __init__(self, store: Store, leading: Callable[[], int | None], clock: Clock) -> None:
        self._store = store
        self._leading = leading
        self._clock = clock
        self._reading: Reading | None = None

        # The last reading before a jump that has not yet been corrected, and the jump itself.
        self._before_jump: Reading | None = None
        self._jump_s = 0.0
        self._corrected = 0  # jumps so far, by any manager
        self._steady_since = clock.monotonic()
        self._term: int | None = None
        self._led_since = 0.0
        self.loop = Loop("clock", self.run_once, interval_s=INTERVAL_S, clock=clock)

    @property
    def steady_s(self) -> float:
        """Seconds since the last jump of the database's clock, as far as this manager has
        observed."""
        return self._clock.monotonic() - self._steady_since

    def now(self) -> datetime:
        trusted = self._before_jump or self._reading
        return (
            trusted.estimate(self._clock.monotonic()) if trusted is not None else self._clock.now()
        )

    def counts(self, status: Status) -> bool:
        """Whether this manager may act on passed deadlines for a status.

        The leader may, once it knows what happened to the sessions before its term."""
        term = self._leading()
        if term is None or term != self._term or self._reading is None:
            return False
        return deadline_counts(status, self._clock.monotonic() - self._led_since)

    async def run_once(self) -> None:
        sent = self._clock.monotonic()
        term = self._leading()
        if term != self._term:
            self._term = term
            self._led_since = sent
        now, corrected = await self._store.deadlines.now()
        self._observe(Reading(now, sent, self._clock.monotonic()), corrected)
        if self._before_jump is not None and term is not None:
            await self._correct(term)

    def _observe(self, reading: Reading, corrected: int) -> None:
        last = self._reading
        self._reading = reading
        jump_s = forward_jump_s(last, reading) if last is not None else 0.0
        if jump_s:
            self._steady_since = reading.received
            log.warning(
                "the database's clock was set forward: deadlines move with it", seconds=jump_s
            )

        # by this manager, which did not receive the answer, or by another
        if corrected != self._corrected:
            self._before_jump = None
            self._jump_s = 0.0
            self._corrected = corrected
        elif jump_s:
            self._before_jump = self._before_jump or last
            self._jump_s = self._jump_s + jump_s

    async def _correct(self, term: int) -> None:
        if await self._store.deadlines.move(self._jump_s, term=term, clock_jumps=self._corrected):
            self._before_jump = None
            self._jump_s = 0.0
            self._corrected = self._corrected + 1

    async def __aenter__(self) -> DatabaseClock:
        await self.run_once()
        await self.loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.loop.__aexit__()
