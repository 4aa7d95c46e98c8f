"""The report stream: how much it keeps of the usage that a manager has stored."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from moorage.common.aio.clock import ManualClock, SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.link.messages import KeyGrant, RequestLimits, RouteTable
from moorage.common.link.pb import routes_pb2_grpc
from moorage.common.link.proxy_messages import LimitShare, ProxyReply, ProxyReport, RecordsAck
from moorage.common.link.route_codec import reply_to_wire, report_from_wire
from moorage.proxy.control.load import LoadMeter
from moorage.proxy.control.report_stream import ReportStream
from moorage.proxy.control.usage_spool import UsageSpool
from moorage.proxy.core.limit_subject import LimitSubject
from moorage.proxy.core.limits.ledger import Ledger, LedgerReservation, cells_needed
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.metrics import ProxyMetrics
from moorage.proxy.core.request_router import RequestRouter
from moorage.proxy.core.token_meter import Tokens
from moorage.proxy.core.usage_book import UsageBook

ROOM = LimitSubject("budget/b", RequestLimits(tokens_per_minute=100), "tokens")
KEY = KeyGrant("x", user="", project="p", id="k", owner="ada")


class ManagerCall:
    """The call to a manager that stores all usage. ``used``: creates more usage. Ends after
    ``reports``.

    ``sizes``: the allocated memory when 500 reports are still to come, and before the last one."""

    def __init__(self, reports: int, used: Callable[[], Awaitable[None]]) -> None:
        self._left = reports
        self._used = used
        self._acks: tuple[RecordsAck, ...] = ()
        self.stored: list[int] = []
        self.sizes: list[int] = []

    async def write(self, message: Any) -> None:
        report: ProxyReport = report_from_wire(message)
        batches = [(batch.epoch, batch.records[-1].sequence) for batch in report.usage]
        self._acks = tuple(RecordsAck(epoch, sequence) for epoch, sequence in batches)
        self.stored += [sequence for _, sequence in batches]

    async def read(self) -> Any:
        self._left -= 1
        if not self._left:
            return grpc.aio.EOF
        await self._used()
        if self._left in (500, 1):
            gc.collect()
            self.sizes.append(tracemalloc.get_traced_memory()[0])
        return reply_to_wire(ProxyReply(acks=self._acks))

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK


async def test_usage_that_cannot_be_written_is_kept(tmp_path: Path) -> None:
    usage = UsageBook()
    clock = SystemClock()
    blocked = tmp_path / "usage"
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    limiter = RequestLimiter(Ledger([0] * cells_needed(1)), lambda _: None, usage, clock.monotonic)
    load = LoadMeter(router, limiter, "w", "e")
    spool = UsageSpool(blocked, "e")
    stream = ReportStream(
        "w",
        load,
        limiter=limiter,
        ledger=Ledger([0] * cells_needed(1)),
        usage=usage,
        spool=spool,
        clock=clock,
    )
    blocked.write_text("a file where the directory should be")
    usage.add(KEY, "m", "s", Tokens(3, 4))
    await stream.flush_usage()
    assert not spool.dropped
    [amounts] = usage.take().values()
    assert (amounts.requests, amounts.tokens_in, amounts.tokens_out) == (1, 3, 4)


async def test_acknowledged_usage_leaves_nothing_behind(tmp_path: Path) -> None:
    """A call stays open for months, and its proxy reports usage every two seconds."""
    usage = UsageBook()
    clock = SystemClock()
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    limiter = RequestLimiter(Ledger([0] * cells_needed(1)), lambda _: None, usage, clock.monotonic)
    load = LoadMeter(router, limiter, "w", "e")
    spool = UsageSpool(tmp_path, "e")
    stream = ReportStream(
        "w",
        load,
        limiter=limiter,
        ledger=Ledger([0] * cells_needed(1)),
        usage=usage,
        spool=spool,
        clock=clock,
    )

    async def use() -> None:
        usage.add(KEY, "m", "s", Tokens(1, 1))
        await stream.flush_usage()

    await use()
    call = ManagerCall(600, use)
    tracemalloc.start()

    try:
        await stream.run(call)
    finally:
        tracemalloc.stop()

    assert call.stored == list(range(1, 601))
    early, late = call.sizes
    assert late - early < 40_000


@pytest.mark.parametrize("code", [grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE])
async def test_call_that_ends_between_two_reports(tmp_path: Path, code: grpc.StatusCode) -> None:
    """The manager ends the call while no report is due. The next write reports only that the call
    is over."""

    class Manager(routes_pb2_grpc.RouteFeedServicer):
        async def Report(self, requests: Any, context: Any) -> Any:
            await anext(aiter(requests))
            yield reply_to_wire(ProxyReply())
            if code is not grpc.StatusCode.OK:
                await context.abort(code, "the manager is stopped")

    clock = SystemClock()
    usage = UsageBook()
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    limiter = RequestLimiter(Ledger([0] * cells_needed(1)), lambda _: None, usage, clock.monotonic)
    load = LoadMeter(router, limiter, "w", "e")
    stream = ReportStream(
        "w",
        load,
        limiter=limiter,
        ledger=Ledger([0] * cells_needed(1)),
        usage=usage,
        spool=UsageSpool(tmp_path, "e"),
        clock=clock,
    )
    server = grpc.aio.server()
    routes_pb2_grpc.add_RouteFeedServicer_to_server(Manager(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = routes_pb2_grpc.RouteFeedStub(channel).Report()  # type: ignore[no-untyped-call]
            call.add_done_callback(lambda _: stream.tell_unreached(("node-1",)))
            if code is grpc.StatusCode.OK:
                await stream.run(call)
            else:
                with pytest.raises(grpc.aio.AioRpcError, match="the manager is stopped"):
                    await stream.run(call)
    finally:
        await server.stop(None)


class DividingCall:
    """The call to a manager that stores usage, and has ``left`` tokens of a budget. Ends after
    three reports, between which ``apart_s`` pass. ``held``: the proxy's share at each report."""

    def __init__(self, ledger: Ledger, clock: ManualClock, left: int, apart_s: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._left = left
        self._apart_s = apart_s
        self._acks: tuple[RecordsAck, ...] = ()
        self.held: list[int] = []

    async def write(self, message: Any) -> None:
        usage = report_from_wire(message).usage
        self._acks = tuple(RecordsAck(batch.epoch, batch.records[-1].sequence) for batch in usage)
        self.held.append(self._ledger.needs([ROOM], self._clock.monotonic())[0].held_tokens)

    async def read(self) -> Any:
        if len(self.held) == 3:
            return grpc.aio.EOF
        self._clock.advance(self._apart_s)
        return reply_to_wire(
            ProxyReply(acks=self._acks, shares=(LimitShare(ROOM.name, tokens=self._left),))
        )

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("away_s", "late_s", "held"),
    [(0, 0, [100, 7, 7]), (0, 6, [100, 100, 7]), (6, 0, [50, 50, 7]), (1, 1, [50, 7, 7])],
    ids=["at once", "late usage", "after a while away", "after a moment away"],
)
async def test_room_of_a_budget_is_adopted_once_all_usage_is_known(
    tmp_path: Path, away_s: float, late_s: float, held: list[int]
) -> None:
    usage = UsageBook()
    clock = ManualClock()
    ledger = Ledger([0] * cells_needed(1))
    router = RequestRouter(ProxySettings(), ProxyMetrics(), randrange=lambda _: 0)
    router.update_table(RouteTable(1, (), ()))
    limiter = RequestLimiter(ledger, lambda _: None, usage, clock.monotonic)
    load = LoadMeter(router, limiter, "w", "e")
    spool = UsageSpool(tmp_path, "e")
    stream = ReportStream(
        "w", load, limiter=limiter, ledger=ledger, usage=usage, spool=spool, clock=clock
    )
    reservation = ledger.reserve([ROOM], 0, 0.0)
    assert isinstance(reservation, LedgerReservation)

    async def run(left: int) -> list[int]:
        limiter.active[ROOM.name] = ROOM
        call = DividingCall(ledger, clock, left, 16.0)
        await stream.run(call)
        return call.held

    if away_s:
        await run(50)
        clock.advance(away_s)

    if late_s:
        usage.add(KEY, "m", "s", Tokens(3, 4))
        await stream.flush_usage()
        clock.advance(late_s)

    assert await run(7) == held
