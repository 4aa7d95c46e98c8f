"""Accounting of a proxy worker: its limits, its unreported usage, and its load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import RequestLimits
from moorage.proxy.control.load import LoadMeter
from moorage.proxy.control.report_stream import ReportStream
from moorage.proxy.control.shared_limits import SharedMemory
from moorage.proxy.control.usage_spool import UsageSpool
from moorage.proxy.control.worker_slot import WorkerSlot
from moorage.proxy.core.limits.ledger import Ledger
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.response_homes import ResponseHomes
from moorage.proxy.core.result_news import ResultNews
from moorage.proxy.core.usage_book import UsageBook


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingParts:
    """The services that the router consults for each request, shared with the other workers of the
    proxy. ``usage``: None if nothing is metered."""

    limiter: RequestLimiter
    ledger: Ledger
    homes: ResponseHomes
    results: ResultNews
    usage: UsageBook | None


def accounting_parts(
    limits_of: Callable[[str], RequestLimits | None],
    clock: Clock,
    *,
    metering: bool,
    slot: WorkerSlot | None = None,
) -> AccountingParts:
    """``limits_of``: returns a project's limits."""
    memory = SharedMemory() if slot is None else SharedMemory(slot.limits_fd, slot.number)
    usage = UsageBook() if metering else None
    limiter = RequestLimiter(
        memory.ledger,
        limits_of,
        usage=usage,
        monotonic=clock.monotonic,
        unix_now=lambda: clock.now().timestamp(),
    )

    return AccountingParts(
        limiter=limiter,
        ledger=memory.ledger,
        homes=memory.homes,
        results=memory.results,
        usage=usage,
    )


class Accounting:
    """Reports a worker's load and usage. An async context manager: on exit, the last usage is
    written to disk."""

    def __init__(
        self,
        router: RequestRouter,
        parts: AccountingParts,
        *,
        clock: Clock,
        directory: Path,
        proxy_id: str,
        slot: WorkerSlot | None = None,
    ) -> None:
        epoch = clock.new_id()
        name = proxy_id if slot is None else f"{proxy_id}/{slot.number}"
        self.reports = ReportStream(
            proxy_id,
            LoadMeter(router, parts.limiter, name, epoch),
            limiter=parts.limiter,
            ledger=parts.ledger,
            usage=parts.usage,
            spool=UsageSpool(directory / "usage", epoch),
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
