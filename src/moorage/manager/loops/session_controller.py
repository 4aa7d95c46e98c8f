"""Sessions follow their kernels, and no status lasts too long: the shell around ``judging.judge``."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.reconcile import judge
from moorage.manager.store import Store

log = structlog.get_logger("moorage.lifekeeper")


# Everything is looked at so often; in between, what this manager has changed itself, at once.
LOOK_S = 0.8
# And so often also at those that run, should what another manager changed have been lost with it.
LOOK_DEEP_S = 4.0


class Lifekeeper:
    """Runs in every manager: moves are compare-and-swap, so two that judge alike do no harm."""

    def __init__(self, store: Store, clock: Clock, lost_grace_s: float) -> None:
        self._store, self._clock, self._lost_grace_s = store, clock, lost_grace_s
        self._touched: set[SessionId] = set()
        self._looked_at: float | None = None
        self._looked_deep_at = 0.0
        self.loop = Loop("lifekeeper", self._tick, interval_s=1.0, clock=clock, rest=2.0)
        store.notifier.on_kernels(self._heard)

    def _heard(self, sessions: Collection[SessionId] | None) -> None:
        self._touched.update(sessions or ())
        self.loop.nudge()

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        # First those that it was told of: to look for others takes as long as to judge these.
        await self._judge_touched()
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            deep = self._looked_at is None or now - self._looked_deep_at >= LOOK_DEEP_S
            self._looked_at = None  # until the look has succeeded
            await self._judge(None, deep=deep)
            self._looked_at = now
            if deep:
                self._looked_deep_at = now

    async def _judge_touched(self) -> None:
        touched, self._touched = self._touched, set()
        try:
            if touched:
                await self._judge(touched)
            touched = set()
        finally:
            # Those that run are only looked for in a deep look: what was told of them must not be lost.
            self._touched |= touched

    async def _judge(self, among: Collection[SessionId] | None, *, deep: bool = False) -> None:
        facts, now = await self._store.unsettled(among, deep=deep)
        moves = [move for one in facts if (move := judge(one, now, self._lost_grace_s)) is not None]
        if not moves:
            return
        for move in moves:
            log.info(
                "session", id=move.session_id, step=move.event, status=move.new, reason=move.reason or None
            )
        await self._store.move_all(moves)
        # A move may make the next one possible (a kernel that is ready before its start was seen).
        self._heard([move.session_id for move in moves])
