"""Usage writer: writes the usage reports of all agents once a second, in one statement.

Only the newest report of each agent is kept. The newest load of each engine and progress of each
kernel are kept until they are written, because reports contain only changes; so are per-minute
records. While Postgres is slow or unavailable, up to a limited number of values wait. Well before
the limit, agents are asked to hold their usage; a report that would exceed it is refused as a
whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Generic, TypeVar

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.resource_usage import EngineUse, KernelMinute, KernelProgress, UsageReport
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store

log = structlog.get_logger("moorage.usage")

EVERY_S = 1.0
# Per kind: the number that may wait, and the number of minutes that one statement writes. From half
# the limit on, agents hold their usage, so that what they have already sent fits into the other
# half.
WAITING = 20_000
AT_ONCE = 2_000
_ENGINES = 1_000  # of one agent

V = TypeVar("V")


class _Newest(Generic[V]):
    """The newest value of each kernel that has not yet been written, including values that are
    being written."""

    def __init__(self) -> None:
        self._waiting: dict[KernelId, V] = {}
        self._writing: dict[KernelId, V] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._writing)

    def fits(self, kernels: Collection[KernelId]) -> bool:
        return len(self) + sum(kernel not in self._waiting for kernel in kernels) <= WAITING

    def put(self, kernel_id: KernelId, value: V) -> None:
        self._waiting[kernel_id] = value

    def begin(self) -> list[V]:
        """Take the values to write now."""
        self._writing = self._waiting
        self._waiting = {}
        return list(self._writing.values())

    def end(self, *, written: bool) -> None:
        if not written:
            self._waiting = self._writing | self._waiting
        self._writing = {}


class UsageWriter:
    def __init__(self, store: Store, metrics: ManagerMetrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._newest: dict[AgentId, UsageReport] = {}
        self._engines = _Newest[tuple[AgentId, EngineUse]]()
        self._progress = _Newest[tuple[AgentId, KernelProgress]]()
        self._minutes: deque[tuple[UsageReport, KernelMinute]] = deque()
        self.loop = Loop("usage", self.run_once, interval_s=EVERY_S, clock=clock)

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting that agents should not send usage."""
        return max(len(self._engines), len(self._progress), len(self._minutes)) > WAITING // 2

    def take(self, report: UsageReport) -> bool:
        """Accept a report. Returns False if too much is waiting to be written, in which case no
        part of the report is accepted."""
        engines = report.engines[:_ENGINES]
        progress = report.progress[:_ENGINES]
        fits = (
            self._engines.fits([engine.kernel_id for engine in engines])
            and self._progress.fits([update.kernel_id for update in progress])
            and len(self._minutes) + len(report.minutes) <= WAITING
        )
        self._metrics.usage_received(dropped=not fits or report.agent_id in self._newest)
        if not fits:
            return False

        self._newest[report.agent_id] = report
        for use in engines:
            self._engines.put(use.kernel_id, (report.agent_id, use))
        for update in progress:
            self._progress.put(update.kernel_id, (report.agent_id, update))

        self._minutes.extend((report, minute) for minute in report.minutes)
        return True

    async def run_once(self) -> None:
        """Write the waiting values. While the store is unavailable, they keep waiting."""
        try:
            await self._write()
        except StoreUnavailable as error:
            self._engines.end(written=False)
            self._progress.end(written=False)
            log.debug("usage is not written yet", why=error.message)

    async def _write(self) -> None:
        if engines := self._engines.begin():
            await self._store.loads.put_engines(engines)

        self._engines.end(written=True)
        if progress := self._progress.begin():
            await self._store.progress.put(progress)

        self._progress.end(written=True)
        reports = self._newest
        self._newest = {}
        if reports:
            try:
                await self._store.usage.put(list(reports.values()))
            except StoreUnavailable:
                self._newest = reports | self._newest
                raise

        while self._minutes:
            some = [self._minutes.popleft() for _ in range(min(AT_ONCE, len(self._minutes)))]
            try:
                await self._store.usage.put_minutes(some)
            except StoreUnavailable:
                self._minutes.extendleft(reversed(some))
                raise
