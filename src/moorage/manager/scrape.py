"""Scraping of the manager's metrics: counts rows in the database when metrics are requested.

A manager that nobody scrapes counts nothing. Counting takes at most one percent of the time,
however often metrics are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.model.errors import StoreUnavailable
from moorage.common.views.metering import UsageSplit
from moorage.manager.identity.scope import Scope
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.metrics")

# Minimum age of counts before rows are counted again, and the maximum share of time spent on
# counting.
LEAST_AGE_S = 2.0
COST = 0.01
# The same for the ledger's sums, followed by their timeout and the maximum number of projects and
# budgets, of which the most used come first.
LEDGER_AGE_S = 30.0
LEDGER_WITHIN_S = 3.0
PROJECTS = 500
BUDGETS = 500


class Scrape:
    def __init__(self, store: Store, metrics: ManagerMetrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._due_at = {"counts": 0.0, "ledger": 0.0}

    async def render(self) -> bytes:
        """Render in the Prometheus text format. Without a database, the counts stay as they are."""
        await self._refresh("counts", LEAST_AGE_S, self._count)
        self._metrics.set_unreadable(self._store.unreadable.counts())
        return self._metrics.render()

    async def render_tenants(self) -> bytes:
        """Render the projects' usage and the budgets. Without a database, they stay as they are."""
        await self._refresh("ledger", LEDGER_AGE_S, self._sum_up)
        return self._metrics.ledger.render()

    async def _refresh(
        self, what: str, least_age_s: float, read: Callable[[], Awaitable[None]]
    ) -> None:
        started = self._clock.monotonic()
        if started < self._due_at[what]:
            return

        self._due_at[what] = started + least_age_s  # for concurrent requests
        try:
            await read()
        except (StoreUnavailable, TimeoutError) as error:
            log.debug("metrics were not read from the database", what=what, why=str(error))

        now = self._clock.monotonic()
        self._due_at[what] = now + max(least_age_s, (now - started) / COST)

    async def _count(self) -> None:
        self._metrics.set_counts(await self._store.counts())
        self._metrics.capacity.set_slots(await self._store.slot_counts())
        self._metrics.capacity.set_oldest_pending(await self._store.oldest_pending())
        self._metrics.set_usage(await self._store.usage.totals())

    async def _sum_up(self) -> None:
        now = self._clock.now()
        everyone = Scope.system("metrics")
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        until = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        self._metrics.ledger.set_budgets(await self._store.budgets.most_used(BUDGETS))

        async with asyncio.timeout(LEDGER_WITHIN_S):
            split = UsageSplit(by=["project"])
            page = await self._store.usage_records.page(
                everyone, midnight, until, split, limit=PROJECTS
            )

        self._metrics.ledger.set_used(page.items)
