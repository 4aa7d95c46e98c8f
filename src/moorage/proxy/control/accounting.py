"""Accounting of a proxy worker: its limits, its usage on the way to the manager, and its load."""

from __future__ import annotations

from pathlib import Path

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import RequestLimits
from moorage.proxy.control.load import LoadMeter
from moorage.proxy.control.report_stream import ReportStream
from moorage.proxy.control.shared_limits import SharedMemory
from moorage.proxy.control.usage_spool import UsageSpool
from moorage.proxy.control.worker_slot import WorkerSlot
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.usage_book import UsageBook


class Accounting:
    """Composes the request limiter, which the request flow asks, and the report stream. An async
    context manager: on leaving, the last usage is written to disk."""

    def __init__(
        self,
        router: RequestRouter,
        clock: Clock,
        directory: Path,
        proxy_id: str,
        *,
        metering: bool,
        slot: WorkerSlot | None = None,
    ) -> None:
        memory = SharedMemory() if slot is None else SharedMemory(slot.limits_fd, slot.number)
        self.homes = memory.homes
        self.results = memory.results
        ledger = memory.ledger
        usage = UsageBook() if metering else None

        def limits_of(project: str) -> RequestLimits | None:
            return router.table.limits_of_project(project) if router.table is not None else None

        self.limiter = RequestLimiter(
            ledger,
            limits_of,
            usage=usage,
            monotonic=clock.monotonic,
            unix_now=lambda: clock.now().timestamp(),
        )
        epoch = clock.new_id()
        name = proxy_id if slot is None else f"{proxy_id}/{slot.number}"
        load = LoadMeter(router, self.limiter, name, epoch)
        spool = UsageSpool(directory / "usage", epoch)
        self.reports = ReportStream(
            proxy_id,
            load,
            limiter=self.limiter,
            ledger=ledger,
            usage=usage,
            spool=spool,
            clock=clock,
        )
        self._loop = Loop("proxy.usage", self.reports.spool_usage, interval_s=1.0, clock=clock)

    async def __aenter__(self) -> Accounting:
        await self.reports.load_usage()
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop.__aexit__(*exc)
        await self.reports.flush_usage()
