"""Report stream: sends this worker's load and usage to the manager, and receives its shares of
limits.

One report is in flight at a time, and the next one follows its reply. The request loop never waits
for reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import structlog

from moorage.common.aio.clock import Clock
from moorage.common.link.proxy_messages import (
    LimitNeed,
    LoadReport,
    ProxyReply,
    ProxyReport,
    UsageBatch,
)
from moorage.common.link.route_codec import reply_from_wire, report_to_wire
from moorage.proxy.control.load import LoadMeter
from moorage.proxy.control.usage_spool import UsageSpool
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.limits.ledger import COUNTED_S, Ledger
from moorage.proxy.core.limits.request_needs import WINDOW_S
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.usage_book import UsageBook

log = structlog.get_logger("moorage.proxy.control.feed")

# The interval of checks for an urgent report, the interval of load reports, and the longest
# interval without a report.
LOOK_S = 0.05
LOAD_S = 1.0
HEARTBEAT_S = 5.0
# When a share is requested again, and how long it is used. The manager keeps it longer.
RENEW_S = 3.0
USE_S = 8.0
# How often usage is written to disk while a manager accepts it, and while no manager does.
SPOOL_S = 2.0
SPOOL_AWAY_S = 60.0
# Usage that has waited this long for a manager is not included in the remaining budgets it reports.
_LATE_S = 5.0
# The most batches in one report.
_BATCHES = 20


class ReportStream:
    """The stream. ``run`` serves one connection, ``spool_usage`` runs all the time."""

    def __init__(
        self,
        proxy_id: str,
        load: LoadMeter,
        *,
        limiter: RequestLimiter,
        ledger: Ledger,
        usage: UsageBook | None,
        spool: UsageSpool,
        clock: Clock,
    ) -> None:
        self._proxy_id = proxy_id
        self._load = load
        self._limiter = limiter
        self._ledger = ledger
        self._usage = usage
        self._spool = spool
        self._clock = clock

        # Unacknowledged batches, by epoch and last number.
        self._batches: dict[tuple[str, int], UsageBatch] = {}
        self._sent: set[tuple[str, int]] = set()  # sent on the open call
        self._subjects: dict[
            str, tuple[LimitSubject, float]
        ] = {}  # with the time of the last request to each
        self._renew_at: dict[str, float] = {}
        self._usage_taken_ms = round(clock.now().timestamp() * 1000)
        self._spooled_at = clock.monotonic()
        self._is_open = False
        self._closed_at: float | None = None
        self._waiting: frozenset[str] = frozenset()
        self._dialout = ""  # the address where dial-out agents reach this worker
        self._unreached: tuple[str, ...] = ()
        self._reported_unreached: tuple[str, ...] = ()
        self._drained: frozenset[str] = frozenset()
        self._load_at = 0.0
        self._heartbeat_at = 0.0

    def publish_dialout(self, address: str) -> None:
        """Set the address where agents that only dial out reach this worker."""
        self._dialout = address

    def tell_unreached(self, hosts: tuple[str, ...]) -> None:
        """Report soon that these agents' hosts do not answer this worker."""
        self._unreached = hosts

    async def run(self, call: Any, on_reply: Callable[[ProxyReply], None] = lambda _: None) -> None:
        """Serve one connection until the manager ends the call. Raises ``grpc.aio.AioRpcError``."""
        whole = True
        self._sent.clear()
        if self._closed_at is not None and self._clock.monotonic() - self._closed_at > _LATE_S:
            self._ledger.hold_rooms(self._clock.monotonic() + COUNTED_S / 2)

        try:
            while True:
                now = self._clock.monotonic()
                report = self._due(now, whole=whole)
                if report is None:
                    await asyncio.sleep(LOOK_S)
                    continue

                try:
                    await call.write(report_to_wire(report))
                    message = await call.read()
                except asyncio.InvalidStateError:  # the call has ended since the last reply
                    message = grpc.aio.EOF

                if message is grpc.aio.EOF:
                    code = await call.code()
                    if code is not grpc.StatusCode.OK:
                        raise grpc.aio.AioRpcError(
                            code, *await _metadata(call), details=await call.details()
                        )

                    return

                self._is_open = True
                whole = whole and report.load is None
                reply = reply_from_wire(message)
                on_reply(reply)
                if reply.proxies:
                    self._ledger.share_among(reply.proxies)

                for share in reply.shares:
                    if (known := self._subjects.get(share.subject)) is not None and known[0].unit:
                        self._ledger.adopt_room(share, now)
                    else:
                        self._ledger.adopt(share, now + USE_S)

                if reply.acks:
                    await asyncio.to_thread(self._spool.remove, reply.acks)
                    for ack in reply.acks:
                        self._batches.pop((ack.epoch, ack.sequence), None)
                        self._sent.discard((ack.epoch, ack.sequence))
        finally:
            self._closed_at = self._clock.monotonic()
            self._is_open = False

    def _due(self, now: float, *, whole: bool) -> ProxyReport | None:
        if self._batches:
            ended_ms = min(batch.records[-1].ended_ms for batch in self._batches.values())
            if self._clock.now().timestamp() - ended_ms / 1000 > _LATE_S:
                self._ledger.hold_rooms(now + COUNTED_S / 2)

        load = self._read_load(now, whole=whole)
        needs = self._read_needs(now)
        unsent = [name for name in self._batches if name not in self._sent][:_BATCHES]
        usage = tuple(self._batches[name] for name in unsent)
        self._sent.update(unsent)
        is_news = self._unreached != self._reported_unreached
        is_due = is_news or now - self._heartbeat_at >= HEARTBEAT_S
        if load is None and not needs and not usage and not is_due:
            return None

        self._heartbeat_at = now
        self._reported_unreached = self._unreached
        load = load or self._load.heartbeat()
        return ProxyReport(
            self._proxy_id,
            load,
            usage=usage,
            needs=needs,
            dialout=self._dialout,
            unreached=self._unreached,
        )

    def _read_load(self, now: float, *, whole: bool) -> LoadReport | None:
        waiting = self._load.waiting
        drained = self._load.drained
        at_once = not (waiting <= self._waiting and drained <= self._drained)
        self._waiting = waiting
        self._drained = drained
        if not (whole or at_once or now - self._load_at >= LOAD_S):
            return None
        self._load_at = now
        return self._load.read(now, whole=whole)

    def _read_needs(self, now: float) -> tuple[LimitNeed, ...]:
        """The needs of subjects whose share is due: new subjects, subjects that ran short, and
        periodically every subject in use."""
        limiter = self._limiter
        due = set(self._limiter.unmet)
        limiter.unmet.clear()
        for name, subject in limiter.active.items():
            self._subjects[name] = subject, now

        limiter.active.clear()
        for name, (_, asked_at) in list(self._subjects.items()):
            if now - asked_at > 2 * WINDOW_S:
                del self._subjects[name]
                self._renew_at.pop(name, None)
            elif self._renew_at.get(name, 0.0) <= now:
                due.add(name)

        self._renew_at |= dict.fromkeys(due, now + RENEW_S)
        subjects: Sequence[LimitSubject] = [
            self._subjects[name][0] for name in due if name in self._subjects
        ]
        return self._ledger.needs(subjects, now)

    async def spool_usage(self) -> None:
        """Write usage to disk, at intervals that depend on whether a manager accepts it. Call it
        about once a second."""
        now = self._clock.monotonic()
        if now - self._spooled_at >= (SPOOL_S if self._is_open else SPOOL_AWAY_S):
            await self.flush_usage()

    async def load_usage(self) -> None:
        """Load the usage left on disk by earlier runs."""
        self._add(await asyncio.to_thread(self._spool.load))

    async def flush_usage(self) -> None:
        """Write usage to disk now."""
        if self._usage is None:
            return

        now_ms = round(self._clock.now().timestamp() * 1000)
        began_ms = min(self._usage_taken_ms, now_ms)
        self._usage_taken_ms = now_ms
        self._spooled_at = self._clock.monotonic()
        if not (taken := self._usage.take()):
            return

        try:
            self._add(await asyncio.to_thread(self._spool.store, taken, began_ms, now_ms))
        except OSError as error:
            self._usage.put_back(taken)
            self._usage_taken_ms = began_ms
            log.error(
                "cannot write usage to disk; retrying",
                error=str(error),
                next_step="free some space in the proxy's home or make it writable",
            )

    def _add(self, batches: Sequence[UsageBatch]) -> None:
        for batch in batches:
            if batch.records:
                self._batches[batch.epoch, batch.records[-1].sequence] = batch


async def _metadata(call: Any) -> tuple[Any, Any]:
    return await call.initial_metadata(), await call.trailing_metadata()
