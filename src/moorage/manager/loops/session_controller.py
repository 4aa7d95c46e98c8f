"""Session controller: reconciles sessions with their kernels and their deadlines.

Every manager immediately reconciles the sessions whose kernels it has changed. The leader also
scans for passed deadlines and for changes that were not reconciled, and sweeps all sessions in
chunks. Only the leader acts on deadlines.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.reconcile import (
    ended_without_result,
    may_continue,
    reconcile_session,
)
from moorage.manager.lifecycle.snapshots import SessionSnapshot
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.lifecycle.transitions import Transition
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store
from moorage.manager.store.sessions.lifecycle import SweepCursor

log = structlog.get_logger("moorage.sessions")


# Interval of the scan for sessions past their deadline.
SCAN_S = 0.8
# Interval of the scan for sessions whose kernels, agents or dependencies have changed. Sessions
# that this manager has changed are reconciled immediately; this scan recovers lost notifications.
CHANGES_SCAN_S = 4.0
# Interval at which array elements get their turns, if the manager that saw another one end did not
# get to it.
TURNS_SCAN_S = 20.0
# The scan for changes uses the start times of the transactions that made the changes. No
# transaction takes this long.
OVERLAP_S = 45.0
# Number of live sessions that the sweep examines each second, changed or not. It runs immediately
# where notifications may be missing: after an election, a jump of the database's clock, or the loss
# of its connection or of a manager.
SWEEP_S = 1.0
SWEPT = 1_000
# Number of sessions reconciled together. Reading more of them would block the event loop.
BATCH = 500


class SessionController:
    """Transitions are written by compare-and-swap, so concurrent controllers do no harm.
    Transitions found by a scan also check the leader's term."""

    def __init__(self, store: Store, leader: Leader, clock: Clock, lost_grace_s: float) -> None:
        self._store = store
        self._leader = leader
        self._clock = clock
        self._lost_grace_s = lost_grace_s
        self._changed: set[SessionId] = set()
        self._term: int | None = None
        self._scanned_at = 0.0
        self._changes_scanned_at = 0.0
        self._swept_at = 0.0
        self._turns_scanned_at = 0.0
        self._sweep: Sweep[SweepCursor] = Sweep()
        self.loop = Loop("sessions", self.run_once, interval_s=1.0, clock=clock, bursts=True)
        store.notifier.on_kernels(self._kernels_changed)

    def _kernels_changed(self, sessions: Collection[SessionId] | None) -> None:
        if sessions is None:
            self._sweep.restart()
        else:
            self._changed.update(sessions)
        self.loop.nudge()

    async def run_once(self) -> None:
        # Changed sessions come first, because the scan for others takes as long as reconciling
        # these.
        await self._reconcile_changed()
        term = self._leader.term
        now = self._clock.monotonic()
        if term != self._term or self._leader.deadlines.steady_s < now - self._swept_at:
            self._sweep.restart()
            self._scanned_at = now - CHANGES_SCAN_S
            self._changes_scanned_at = self._scanned_at
            self._turns_scanned_at = now - TURNS_SCAN_S

        self._term = term
        if term is None:
            return
        if now - self._scanned_at >= SCAN_S:
            await self._scan(now)

        if now - self._turns_scanned_at >= TURNS_SCAN_S:
            await self._store.turns.recover()
            self._turns_scanned_at = now

        if self._sweep.urgent or now - self._swept_at >= SWEEP_S:
            found, cursor = await self._store.lifecycle.sweep(self._sweep.begin(), SWEPT)
            await self._reconcile(found, term)
            self._sweep.advance(cursor)
            self._swept_at = now

        if self._sweep.urgent:
            self.loop.nudge()

    async def _scan(self, now: float) -> None:
        since_s = now - self._changes_scanned_at
        changed_s = since_s + OVERLAP_S if since_s >= CHANGES_SCAN_S else None
        await self._reconcile(
            await self._store.lifecycle.to_reconcile(changed_s=changed_s), self._term
        )
        self._scanned_at = now
        if changed_s is not None:
            self._changes_scanned_at = now

    async def _reconcile_changed(self) -> None:
        changed = self._changed
        self._changed = set()
        try:
            await self._reconcile(changed)
            changed = set()
        finally:
            self._changed |= changed  # for a retry

    async def _reconcile(self, sessions: Collection[SessionId], term: int | None = None) -> None:
        """``term``: the leader's term; only the leader acts on deadlines."""
        ids = list(sessions)
        for batch in (ids[start : start + BATCH] for start in range(0, len(ids), BATCH)):
            # Taken before the deadlines are read, because they may be moved at any moment.
            trusted = self._leader.deadlines.now()
            snapshots, now = await self._store.lifecycle.unsettled(batch)
            now = min(now, trusted)
            orphaned = {
                s.session_id
                for snapshot in snapshots
                if (s := snapshot.shared) and ended_without_result(s)
            }
            if orphaned:
                await self._store.lifecycle.succeed(orphaned)

            decided = [(snapshot, self._decide(snapshot, now, term)) for snapshot in snapshots]
            moves = [(snapshot, move) for snapshot, move in decided if move is not None]
            for _, move in moves:
                log.info(
                    "session",
                    session_id=move.session_id,
                    step=move.event,
                    status=move.new,
                    reason=move.reason or None,
                )

            if moves:
                applied = await self._store.lifecycle.apply_all(
                    [move for _, move in moves], term=term
                )
                # A transition may enable the next one. A transition that was not applied was based
                # on an outdated snapshot; whoever changed the session in the meantime examines it
                # again.
                grace_s = self._lost_grace_s
                stale = applied < len(moves)
                again = [
                    o.session_id for o, m in moves if stale or may_continue(o, m, now, grace_s)
                ]
                if again:
                    self._kernels_changed(again)

    def _decide(
        self, session: SessionSnapshot, now: datetime, term: int | None
    ) -> Transition | None:
        deadlines = term is not None and self._leader.deadlines.counts(session.status)
        return reconcile_session(session, now, self._lost_grace_s, deadlines=deadlines)
