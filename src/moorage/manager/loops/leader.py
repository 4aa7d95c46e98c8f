"""Leader election by a lease in Postgres. Each lease has a term; other managers wait until it expires."""

from __future__ import annotations

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.loops.deadline_clock import DeadlineClock
from moorage.manager.store import Store

log = structlog.get_logger("moorage.leader")

TTL_S = 10.0
# The leader stops trusting its lease this long before Postgres does, so that a slow response cannot extend
# it.
MARGIN_S = 2.0


class Leader:
    """``term``: the term of this manager's lease while it is the leader, else None. ``deadlines``: the clock
    that the leader acts by."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._holder = clock.new_id()
        self._term: int | None = None
        self._trusted_until = 0.0
        self.deadlines = DeadlineClock(store, lambda: self.term, clock)
        self.loop = Loop("leader", self.run_once, interval_s=TTL_S / 3, clock=clock)

    @property
    def term(self) -> int | None:
        return self._term if self._clock.monotonic() < self._trusted_until else None

    async def run_once(self) -> None:
        started = self._clock.monotonic()
        term = await self._store.leases.acquire(self._holder, TTL_S)
        if term is not None:
            # Counted from before the attempt: a slow but successful write must not extend the lease.
            self._trusted_until = started + TTL_S - MARGIN_S
            if term != self._term:
                log.info("leading", term=term)
        self._term = term

    async def __aenter__(self) -> Leader:
        await self.run_once()
        await self.loop.__aenter__()
        await self.deadlines.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.deadlines.__aexit__()
        await self.loop.__aexit__()
        if (term := self.term) is not None:
            self._trusted_until = 0.0
            try:
                await self._store.leases.release(self._holder, term)
            except StoreUnavailable:
                log.info("could not release the lease: it will expire", term=term)
