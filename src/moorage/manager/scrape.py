"""Scrape of the manager's metrics: reads what is counted in the database when somebody asks for it.

A manager that nobody scrapes counts nothing. Counting takes at most a hundredth of the time, however often
metrics are read.
"""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.metrics import Metrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.metrics")

# Counts are at least so old before they are made again, and a hundred times as old as making them took.
LEAST_AGE_S, COST = 2.0, 0.01


class Scrape:
    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store, self._metrics, self._clock = store, metrics, clock
        self._due_at = 0.0

    async def render(self) -> bytes:
        """Prometheus text format. Without a database, the counts stay as they are."""
        started = self._clock.monotonic()
        if started >= self._due_at:
            self._due_at = started + LEAST_AGE_S  # for others that ask meanwhile
            try:
                self._metrics.set_counts(await self._store.counts())
                self._metrics.capacity.set_slots(await self._store.slot_counts())
                self._metrics.capacity.set_oldest_pending(await self._store.oldest_pending())
                self._metrics.set_usage(await self._store.usage.totals())
            except StoreUnavailable as error:
                log.debug("sessions and agents were not counted", why=error.message)
            now = self._clock.monotonic()
            self._due_at = now + max(LEAST_AGE_S, (now - started) / COST)
        return self._metrics.render()
