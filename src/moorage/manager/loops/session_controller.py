"""Session controller: reconciles sessions with their kernels and their deadlines.

Every manager reconciles the sessions whose kernels it has changed, at once. The leader also scans for all
others, and it alone acts on deadlines.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.reconcile import reconcile_session
from moorage.manager.lifecycle.snapshots import SessionSnapshot
from moorage.manager.lifecycle.transitions import Transition
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store

log = structlog.get_logger("moorage.sessions")


# Interval of the scan for all sessions that need reconciling. Sessions whose kernels this manager has changed
# are reconciled at once.
SCAN_S = 0.8
# Interval of the full scan, which also finds RUNNING sessions with ended kernels: it recovers notifications
# that were lost with another manager. Every scan finds sessions past their deadline.
FULL_SCAN_S = 4.0


class SessionController:
    """Transitions are compare-and-swap, so concurrent controllers do no harm. Those that a scan finds also
    check the leader's term."""

    def __init__(self, store: Store, leader: Leader, clock: Clock, lost_grace_s: float) -> None:
        self._store, self._leader, self._clock = store, leader, clock
        self._lost_grace_s = lost_grace_s
        self._changed: set[SessionId] = set()
        self._scanned_at: float | None = None
        self._full_scan_at = 0.0
        self.loop = Loop("sessions", self.run_once, interval_s=1.0, clock=clock, bursts=True)
        store.notifier.on_kernels(self._kernels_changed)

    def _kernels_changed(self, sessions: Collection[SessionId] | None) -> None:
        self._changed.update(sessions or ())
        self.loop.nudge()

    async def run_once(self) -> None:
        now = self._clock.monotonic()
        # First the changed ones: the scan for others takes as long as reconciling these.
        await self._reconcile_changed()
        if self._leader.term is None:
            self._scanned_at = None
        elif self._scanned_at is None or now - self._scanned_at >= SCAN_S:
            deep = self._scanned_at is None or now - self._full_scan_at >= FULL_SCAN_S
            self._scanned_at = None  # until the scan has succeeded
            await self._reconcile(None, deep=deep)
            self._scanned_at = now
            if deep:
                self._full_scan_at = now

    async def _reconcile_changed(self) -> None:
        changed, self._changed = self._changed, set()
        try:
            if changed:
                await self._reconcile(changed)
            changed = set()
        finally:
            # Only a full scan finds RUNNING sessions with ended kernels: keep their notification for a retry.
            self._changed |= changed

    async def _reconcile(self, among: Collection[SessionId] | None, *, deep: bool = False) -> None:
        term = self._leader.term if among is None else None
        # Taken before the deadlines are read: they may be moved at any moment.
        trusted = self._leader.deadlines.now()
        sessions, now = await self._store.lifecycle.unsettled(among, deep=deep)
        now = min(now, trusted)
        moves = [move for session in sessions if (move := self._decide(session, now, term)) is not None]
        if not moves:
            return
        for move in moves:
            log.info(
                "session", id=move.session_id, step=move.event, status=move.new, reason=move.reason or None
            )
        await self._store.lifecycle.apply_all(moves, term=term)
        # A transition may enable the next one (a kernel that became ready before its start was observed).
        self._kernels_changed([move.session_id for move in moves])

    def _decide(self, session: SessionSnapshot, now: datetime, term: int | None) -> Transition | None:
        deadlines = term is not None and self._leader.deadlines.counts(session.status)
        return reconcile_session(session, now, self._lost_grace_s, deadlines=deadlines)
