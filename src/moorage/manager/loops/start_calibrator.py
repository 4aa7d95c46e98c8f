"""Start calibrator: records the outcome of expected starts, and publishes their errors."""

from __future__ import annotations

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import SessionId
from moorage.manager.lifecycle.sweep import Sweep
from moorage.manager.loops.leader import Leader
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from moorage.manager.store.scheduling.expected_starts import BATCH

EVERY_S = 15.0


class StartCalibrator:
    """Runs on the leader. Each iteration examines some of the estimates whose outcome is
    unknown."""

    def __init__(
        self, store: Store, leader: Leader, metrics: ManagerMetrics, clock: Clock, *, kept_s: float
    ) -> None:
        """``kept_s``: retention of expected starts in seconds."""
        self._store = store
        self._leader = leader
        self._metrics = metrics
        self._kept_s = kept_s
        self._published = False
        self._sweep: Sweep[SessionId] = Sweep()
        self.loop = Loop("calibration", self.run_once, interval_s=EVERY_S, clock=clock)

    async def run_once(self) -> None:
        if self._leader.term is None:
            self._published = False
            return

        starts = self._store.expected_starts
        changed = not self._published
        resolved, cursor = await starts.resolve(self._sweep.begin())
        self._sweep.advance(cursor)
        changed |= resolved > 0
        while await starts.delete_old(self._kept_s) == BATCH:
            changed = True

        if changed:
            self._metrics.set_start_errors(
                (errors.resource_group, errors.kind, errors.error_p50_s, errors.error_p90_s)
                for errors in await starts.calibration()
            )
            self._published = True
