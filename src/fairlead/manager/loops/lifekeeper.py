"""Sessions follow their kernels, and no status lasts too long: the shell around ``lifecycle.judge``."""

from __future__ import annotations

import structlog

from fairlead.common.clock import Clock
from fairlead.common.loop import Loop
from fairlead.manager.lifecycle import judge
from fairlead.manager.store import Store, Topic

log = structlog.get_logger("fairlead.lifekeeper")


class Lifekeeper:
    """Runs in every manager: moves are compare-and-swap, so two that judge alike do no harm."""

    def __init__(self, store: Store, clock: Clock, lost_grace_s: float) -> None:
        self._store, self._lost_grace_s = store, lost_grace_s
        self.loop = Loop("lifekeeper", self._tick, interval_s=1.0, clock=clock)
        store.bell.on(Topic.KERNELS, self.loop.nudge)

    async def _tick(self) -> None:
        facts, now = await self._store.unsettled()
        moves = [move for one in facts if (move := judge(one, now, self._lost_grace_s)) is not None]
        if not moves:
            return
        for move in moves:
            log.info(
                "session", id=move.session_id, step=move.event, status=move.new, reason=move.reason or None
            )
        await self._store.move_all(moves)
        # A move may make the next one possible (a kernel that is ready before its start was seen).
        self.loop.nudge()
