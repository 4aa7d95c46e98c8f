"""Usage writer: writes the usage reports of all agents once a second, in one statement.

Only the newest report of each agent is kept: while Postgres is slow or unavailable, reports are dropped, not
queued. Of the load of each engine and the progress of each kernel, the newest is kept until it is written:
reports have only what changed.
"""

from __future__ import annotations

from collections import deque

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.usage import EngineUse, KernelMinute, KernelProgress, UsageReport
from moorage.manager.metrics import Metrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.usage")

EVERY_S = 1.0
# Limits on the per-minute records: how many may wait, and how many one statement writes.
_WAITING, _AT_ONCE = 20_000, 2_000
_ENGINES = 1_000  # of one agent


class UsageWriter:
    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store, self._metrics = store, metrics
        self._newest: dict[AgentId, UsageReport] = {}
        self._engines: dict[KernelId, tuple[AgentId, EngineUse]] = {}
        self._progress: dict[KernelId, tuple[AgentId, KernelProgress]] = {}
        self._minutes: deque[tuple[UsageReport, KernelMinute]] = deque(maxlen=_WAITING)
        self.loop = Loop("usage", self.run_once, interval_s=EVERY_S, clock=clock)

    def take(self, report: UsageReport) -> None:
        self._metrics.usage_received(dropped=report.agent_id in self._newest)
        self._newest[report.agent_id] = report
        self._engines |= {one.kernel_id: (report.agent_id, one) for one in report.engines[:_ENGINES]}
        self._progress |= {one.kernel_id: (report.agent_id, one) for one in report.progress[:_ENGINES]}
        self._minutes.extend((report, minute) for minute in report.minutes)

    async def run_once(self) -> None:
        reports, self._newest = list(self._newest.values()), {}
        engines, self._engines = self._engines, {}
        progress, self._progress = self._progress, {}
        try:
            if engines:
                await self._store.loads.put_engines(list(engines.values()))
            if progress:
                await self._store.progress.put(list(progress.values()))
            if reports:
                await self._store.usage.put(reports)
            while self._minutes:
                some = [self._minutes.popleft() for _ in range(min(_AT_ONCE, len(self._minutes)))]
                await self._store.usage.put_minutes(some)
        except StoreUnavailable as error:
            self._minutes.clear()
            self._engines = engines | self._engines
            self._progress = progress | self._progress
            log.debug("usage reports dropped", why=error.message)
