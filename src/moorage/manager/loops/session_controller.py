"""Session controller: reconciles sessions with their kernels and their deadlines."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.reconcile import reconcile_session
from moorage.manager.store import Store

log = structlog.get_logger("moorage.sessions")


# Interval of the scan for all sessions that need reconciling. Sessions whose kernels this manager has changed
# are reconciled at once.
SCAN_S = 0.8
# Interval of the full scan, which also finds RUNNING sessions with ended kernels: it recovers notifications
# that were lost with another manager. Every scan finds sessions past their deadline.
FULL_SCAN_S = 4.0


class SessionController:
    """Runs in every manager. Transitions are compare-and-swap, so concurrent controllers do no harm."""

    def __init__(self, store: Store, clock: Clock, lost_grace_s: float) -> None:
        self._store, self._clock, self._lost_grace_s = store, clock, lost_grace_s
        self._changed: set[SessionId] = set()
        self._scanned_at: float | None = None
        self._full_scan_at = 0.0
        self.loop = Loop("sessions", self.run_once, interval_s=1.0, clock=clock, pause_ratio=2.0)
        store.notifier.on_kernels(self._kernels_changed)

    def _kernels_changed(self, sessions: Collection[SessionId] | None) -> None:
        self._changed.update(sessions or ())
        self.loop.nudge()

    async def run_once(self) -> None:
        now = self._clock.monotonic()
        # First the changed ones: the scan for others takes as long as reconciling these.
        await self._reconcile_changed()
        if self._scanned_at is None or now - self._scanned_at >= SCAN_S:
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
        sessions, now = await self._store.lifecycle.unsettled(among, deep=deep)
        moves = [
            move
            for session in sessions
            if (move := reconcile_session(session, now, self._lost_grace_s)) is not None
        ]
        if not moves:
            return
        for move in moves:
            log.info(
                "session", id=move.session_id, step=move.event, status=move.new, reason=move.reason or None
            )
        await self._store.lifecycle.apply_all(moves)
        # A transition may enable the next one (a kernel that became ready before its start was observed).
        self._kernels_changed([move.session_id for move in moves])
