"""Leader election by a lease in Postgres. Each lease has a term, and every write by a leader checks
it.

Each manager measures durations by its own monotonic clock: how long the leader may trust its lease,
and how long the follower has seen the lease without a renewal. Clocks of two hosts are never
compared.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.loops.database_clock import DatabaseClock
from moorage.manager.store import Lease, Store, Topic

log = structlog.get_logger("moorage.leader")

LEASE_S = 2.0
RENEWAL_S = 0.5
# The leader stops trusting its lease this long before it ends, so that a slow response cannot
# extend it.
MARGIN_S = 0.5
# The longest lease of any release. If a lease appears to last longer, the database's clock has
# jumped.
LONGEST_LEASE_S = 10.0
# A follower checks a lease that is about to end at least this often.
_SHORTEST_LOOK_S = 0.02


class LeaseWatch:
    """A follower's view of the lease, and how long it has been unchanged. Pure."""

    def __init__(self) -> None:
        self._last: tuple[str, int, object] | None = None
        self._ends_at = 0.0

    def remaining_s(self, lease: Lease, now: float) -> float:
        """Seconds until the lease ends unless it is renewed. ``now``: monotonic seconds."""
        seen = lease.holder, lease.term, lease.expires_at
        if seen != self._last:
            self._ends_at = now + min(lease.left_s, LONGEST_LEASE_S)
            self._last = seen
        return self._ends_at - now


class Leader:
    """``term``: the term of this manager's lease while it is the leader, otherwise None.
    ``deadlines``: the clock by which the leader acts. ``on_term`` runs when this manager begins a
    term."""

    def __init__(
        self, store: Store, clock: Clock, on_term: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._holder = store.managers.own_id
        self._term: int | None = None
        self._trusted_until = 0.0
        self.deadlines = DatabaseClock(store, lambda: self.term, clock)
        self._resigned = False
        self._watch = LeaseWatch()
        self._on_term = on_term
        self._begun = 0
        self.loop = Loop("leader", self.run_once, interval_s=RENEWAL_S, clock=clock)
        store.notifier.on(Topic.LEADER, self.loop.nudge)

    @property
    def term(self) -> int | None:
        return self._term if self._clock.monotonic() < self._trusted_until else None

    async def run_once(self) -> None:
        if self._resigned:
            return

        # Counted from before the attempt, because a slow but successful write must not extend the
        # lease.
        started = self._clock.monotonic()
        was_leading = self.term is not None
        if self._term is None or not await self._store.leases.renew(
            self._holder, self._term, LEASE_S
        ):
            self._term = await self._stand()

        if self._term is not None and not self._resigned:
            if self._term != self._begun:
                self._begun = self._term
                self._on_term()

            self._trusted_until = started + LEASE_S - MARGIN_S
            if not was_leading:
                log.info("leading", term=self._term)
                # Work that only a leader does may have been waiting for this.
                self._store.notifier.notify([Topic.SCHEDULE, Topic.ENDPOINTS, Topic.BUDGETS])

    async def _stand(self) -> int | None:
        """Acquire the lease if it is free. Otherwise check again when it ends."""
        lease = await self._store.leases.find()
        self.loop.repeat_after(RENEWAL_S)
        if lease is None or lease.holder == self._holder:
            return await self._store.leases.acquire(self._holder, LEASE_S)

        remaining_s = self._watch.remaining_s(lease, self._clock.monotonic())
        if remaining_s <= 0:
            return await self._store.leases.acquire(self._holder, LEASE_S, lease.expires_at)

        self.loop.repeat_after(min(max(remaining_s, _SHORTEST_LOOK_S), RENEWAL_S))
        return None

    async def resign(self) -> None:
        """Release the lease, notify the followers, and do not become a candidate again.

        Called first when the manager stops, because the remaining steps take longer than an
        election."""
        term = self._term
        self._resigned = True
        self._trusted_until = 0.0
        await self.loop.__aexit__()
        if term is None:
            return

        try:
            await self._store.leases.release(self._holder, term)
        except StoreUnavailable:
            log.info("could not release the lease: it will expire", term=term)

        self._store.notifier.notify([Topic.LEADER])

    async def __aenter__(self) -> Leader:
        await self.run_once()
        await self.loop.__aenter__()
        await self.deadlines.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.deadlines.__aexit__()
        if not self._resigned:
            await self.resign()
