"""Agent link: applies agents' reports and sends their orders. Both carry full state, so a lost message costs
nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from math import ceil
from weakref import WeakValueDictionary

import grpc
import structlog

import moorage
from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link import codec
from moorage.common.link.messages import (
    ExecRequest,
    FullReportRequest,
    LogRequest,
    Orders,
    OrdersDelta,
    Report,
    ReportDelta,
    WorkspaceRequest,
)
from moorage.common.link.pb import agent_pb2
from moorage.common.link.sync import OrdersSender, ReportReceiver
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.versions import incompatibility
from moorage.manager.metrics import Metrics
from moorage.manager.rpc.authentication import Caller
from moorage.manager.rpc.report_interval import ReportInterval
from moorage.manager.rpc.report_validation import find_problem
from moorage.manager.store import ReportRefused, Store

log = structlog.get_logger("moorage.link")

# Without a notification, every agent's orders are read again within POLL_S. Each run polls one part of the
# agents, because a poll of a thousand agents at once would block everything else.
POLL_S, POLL_PARTS = 5.0, 10
# Kernels that were reported as ended are removed with the next orders, or after this many seconds.
PRUNE_DELAY_S = 0.5
# Number of sent generations whose kernels are remembered, to interpret the reports that acknowledge them.
REMEMBERED_GENERATIONS = 64

Context = grpc.aio.ServicerContext[agent_pb2.Report, agent_pb2.ManagerMessage]


class StreamRefused(Exception):
    """Ends a stream with a gRPC status and a message for the agent's log."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class AgentStream:
    """Stream of one agent: the orders that were sent, and those that are waiting to be sent."""

    def __init__(self, first: Report, apply_lock: asyncio.Lock, caller: Caller) -> None:
        self.agent_id, self.incarnation = first.info.agent_id, first.incarnation
        self._caller = caller
        self.apply_lock = apply_lock  # held while a report of this agent is applied
        self.refused: StreamRefused | None = None
        self.wake = asyncio.Event()
        self.wake.set()
        self.requests: list[LogRequest | ExecRequest | WorkspaceRequest | FullReportRequest] = []
        self.established = False  # its first report has been applied
        self.loading_orders = False  # its orders are being read, and their kernels are not known yet
        self._next: Orders | None = None
        self._orders, self._reports = OrdersSender(), ReportReceiver()
        self._sent: OrderedDict[int, frozenset[KernelId]] = OrderedDict()

    def check(self, message: Report | ReportDelta) -> None:
        """Check that a report is from the agent of this stream. Raises ``StreamRefused``."""
        info = message.info
        if info is None:
            return
        if info.agent_id != self.agent_id:
            mismatch = f"the stream of agent {self.agent_id!r} sent a report of agent {info.agent_id!r}"
            raise StreamRefused(grpc.StatusCode.INVALID_ARGUMENT, mismatch)
        if problem := self._caller.refusal_to_act_as(info.agent_id, info.resource_group):
            raise StreamRefused(grpc.StatusCode.PERMISSION_DENIED, problem)

    def send_request(self, request: LogRequest | ExecRequest | WorkspaceRequest | FullReportRequest) -> None:
        self.requests.append(request)
        self.wake.set()

    def apply(self, message: Report | ReportDelta) -> Report | None:
        """The agent's full state after this message. None: the state has diverged, and a full report was
        requested."""
        report = self._reports.apply(message)
        if report is None:
            log.warning("report state has diverged: requesting a full report", agent=self.agent_id)
            self.send_request(FullReportRequest())
        elif report.orders_wanted:
            self._orders.force_full()
        return report

    def has_changes(self, kernels: tuple[KernelSpec, ...]) -> bool:
        return self._next.kernels != kernels if self._next is not None else self._orders.has_changes(kernels)

    def offer(self, orders: Orders) -> None:
        """Send these orders next. They replace earlier ones that have not been sent."""
        self._next = orders
        self.wake.set()

    def next_message(self) -> Orders | OrdersDelta | None:
        """The message for the orders that were offered last; None if they have been sent."""
        orders, self._next = self._next, None
        if orders is None:
            return None
        message = self._orders.next_message(orders)
        self._sent[orders.generation] = frozenset(k.kernel_id for k in orders.kernels)
        while len(self._sent) > REMEMBERED_GENERATIONS:
            self._sent.popitem(last=False)
        return message

    def accepted(self, generation: int) -> frozenset[KernelId] | None:
        """The kernels that the orders of ``generation`` name.

        None if this stream did not send them, or if later orders may name more kernels, since the agent may
        accept those at any moment: orders that were sent, that wait to be sent (a slow agent), or that are
        being read.
        """
        named = self._sent.get(generation)
        if named is None or self.loading_orders:
            return None
        later = [kernels for g, kernels in self._sent.items() if g > generation]
        if self._next is not None:
            later.append(frozenset(k.kernel_id for k in self._next.kernels))
        return named if all(kernels <= named for kernels in later) else None


class AgentLinks:
    """All agents connected to this manager. An agent's newest stream replaces its older one; the store
    decides which one that is, across all managers, when it applies the stream's first report.

    One loop reads the orders of all agents whose orders may have changed, in one query, and polls every agent
    within ``POLL_S``. Each agent's stream writes only the orders that it was offered.
    """

    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store, self._metrics, self._clock = store, metrics, clock
        self._report_interval = ReportInterval()
        self._streams: dict[AgentId, AgentStream] = {}
        self._changed: set[AgentId] = set()
        self._apply_locks: WeakValueDictionary[AgentId, asyncio.Lock] = WeakValueDictionary()
        # Agents whose orders still name kernels that have ended, and the timer that prunes them.
        self._to_prune: set[AgentId] = set()
        self._prune_timer: asyncio.TimerHandle | None = None
        self._logged_refusals: dict[str, str] = {}
        self._unpolled: list[AgentId] = []
        self._polled_at = clock.monotonic()
        self.loop = Loop(
            "orders", self.run_once, interval_s=POLL_S / POLL_PARTS, clock=clock, pause_ratio=2.0
        )
        store.notifier.on_orders(self.orders_changed)

    def get(self, agent_id: str) -> AgentStream | None:
        return self._streams.get(AgentId(agent_id))

    def all(self) -> list[AgentStream]:
        return list(self._streams.values())

    def orders_changed(self, agents: Collection[AgentId] | None) -> None:
        self._changed.update(self._streams if agents is None else agents)
        self.loop.nudge()

    async def run_once(self) -> None:
        waited = self._clock.monotonic() - self._polled_at
        if waited >= 0.8 * POLL_S / POLL_PARTS:
            self._polled_at += waited
            self._changed.update(self._agents_to_poll(waited))
        # A stream gets only orders that were read after its first report was applied. That report may say
        # that a kernel is gone; older orders would name the kernel again, and it would run a second time.
        streams = {a: stream for a in self._changed if (stream := self._streams.get(a)) is not None}
        self._to_prune -= self._changed
        self._changed.clear()
        if not streams:
            return
        for stream in streams.values():
            stream.loading_orders = True
        try:
            # Before the read: a delayed run must not give old orders a newer generation.
            generation = await self._store.orders.next_generation()
            found = await self._store.orders.of_many(list(streams))
            for agent_id, stream in streams.items():
                if stream.has_changes(found[agent_id]):
                    stream.offer(Orders(generation, found[agent_id]))
        except StoreUnavailable:
            self._changed.update(streams)
            raise
        finally:
            for stream in streams.values():
                stream.loading_orders = False

    def _agents_to_poll(self, waited_s: float) -> list[AgentId]:
        """The agents to poll now; their number grows with the time since the last poll."""
        count = ceil(len(self._streams) * min(1.0, waited_s / POLL_S))
        if len(self._unpolled) < count:
            self._unpolled += self._streams
        part, self._unpolled = self._unpolled[:count], self._unpolled[count:]
        return part

    def _schedule_prune(self, agent_id: AgentId) -> None:
        self._to_prune.add(agent_id)
        if self._prune_timer is None:
            self._prune_timer = asyncio.get_running_loop().call_later(PRUNE_DELAY_S, self._prune)

    def _prune(self) -> None:
        self._prune_timer = None
        untidy, self._to_prune = self._to_prune, set()
        self.orders_changed(untidy)

    async def serve(self, reports: AsyncIterator[agent_pb2.Report], context: Context, caller: Caller) -> None:
        """One call of ``Attach``, from the first report until either side disconnects or a newer stream
        replaces it."""
        try:
            first = codec.report_from_wire(await anext(reports))
        except StopAsyncIteration:
            return
        try:
            if not isinstance(first, Report):
                raise StreamRefused(
                    grpc.StatusCode.INVALID_ARGUMENT, "the first report of a stream must be a full report"
                )
            stream = self.open_stream(first, caller)
            try:
                await self._serve(stream, first, reports, context)
            finally:
                self.close_stream(stream)
        except StreamRefused as refused:
            self._log_refusal(context.peer(), refused.message)
            await context.abort(refused.code, refused.message)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    def open_stream(self, first: Report, caller: Caller) -> AgentStream:
        """A stream for a valid first report. It becomes the agent's stream once the store applies that
        report."""
        _check(first)
        agent_id = first.info.agent_id
        stream = AgentStream(first, self._apply_locks.setdefault(agent_id, asyncio.Lock()), caller)
        stream.check(first)
        return stream

    def _take_over(self, stream: AgentStream) -> None:
        """Its first report has been applied, so it replaces every other stream of the agent."""
        older = self._streams.get(stream.agent_id)
        if older is not None:
            if older.incarnation != stream.incarnation:
                log.warning(
                    "another process uses the same agent id: the older one is fenced",
                    agent=stream.agent_id, older=older.incarnation, newer=stream.incarnation,
                    next_step="if both are running, stop one of them or give it another agent.id",
                )  # fmt: skip
                older.refused = _refusal(ReportRefused.by_another_process(stream.agent_id))
            older.wake.set()
        stream.established = True
        self._streams[stream.agent_id] = stream
        self._metrics.set_links(len(self._streams))

    def close_stream(self, stream: AgentStream) -> None:
        if not stream.established:
            return
        if self._streams.get(stream.agent_id) is stream:
            del self._streams[stream.agent_id]
        self._metrics.set_links(len(self._streams))
        log.info("agent disconnected", agent=stream.agent_id)

    async def _serve(
        self,
        stream: AgentStream,
        first: Report,
        reports: AsyncIterator[agent_pb2.Report],
        context: Context,
    ) -> None:
        stream.apply(first)
        await self.apply_report(stream, first)
        log.info("agent connected", agent=stream.agent_id, kernels=len(first.kernels))
        if outdated := incompatibility(moorage.__version__, first.info.version):
            log.warning("the agent's version may be incompatible", agent=stream.agent_id, why=outdated)
        self.orders_changed([stream.agent_id])
        self._logged_refusals.pop(_host(context.peer()), None)
        reader = spawn(f"link.read.{stream.agent_id}", self._read(stream, reports))
        try:
            await self._write(stream, reader, context)
        finally:
            await cancel_and_wait(reader)
        if stream.refused is not None:
            raise stream.refused

    def _log_refusal(self, peer: str, message: str) -> None:
        # A refused agent retries every few seconds; each cause is logged once.
        host = _host(peer)
        if self._logged_refusals.get(host) != message:
            log.warning("agent refused", peer=peer, why=message)
            self._logged_refusals[host] = message
            while len(self._logged_refusals) > 1000:
                del self._logged_refusals[next(iter(self._logged_refusals))]

    async def apply_report(self, stream: AgentStream, report: Report) -> bool:
        """False if a newer stream of the agent has replaced this one here; nothing is changed then. Raises
        ``StreamRefused`` if another manager has a newer one."""
        async with stream.apply_lock:
            if stream.established and self._streams.get(stream.agent_id) is not stream:
                return False
            begun = self._clock.monotonic()
            try:
                changed = await self._store.reports.apply(report, stream.accepted(report.orders_generation))
            except ReportRefused as refused:
                raise _refusal(refused) from None
            if not stream.established:
                self._take_over(stream)
            if changed:
                self._report_interval.record(self._clock.monotonic() - begun)
                self._schedule_prune(stream.agent_id)
        self._metrics.report_applied()
        return True

    async def _read(self, stream: AgentStream, reports: AsyncIterator[agent_pb2.Report]) -> None:
        try:
            async for wire in reports:
                message = codec.report_from_wire(wire)
                _check(message)
                stream.check(message)
                report = stream.apply(message)
                if report is None:
                    continue
                if not await self.apply_report(stream, report):
                    return
                if report.orders_wanted:
                    self.orders_changed([stream.agent_id])
        except StreamRefused as refused:
            stream.refused = refused
        except StoreUnavailable as error:
            log.warning("report not applied: the agent will send it again", error=str(error))
        finally:
            stream.wake.set()

    async def _write(self, stream: AgentStream, reader: asyncio.Task[None], context: Context) -> None:
        while not reader.done() and self._streams.get(stream.agent_id) is stream:
            stream.wake.clear()
            requests, stream.requests = stream.requests, []
            for request in requests:
                await context.write(codec.manager_message_to_wire(request))
            message = stream.next_message()
            if message is not None:
                wire = codec.manager_message_to_wire(message)
                wire.report_pause_ms = round(1000 * self._report_interval.interval_s)
                await context.write(wire)
            await stream.wake.wait()


def _check(message: Report | ReportDelta) -> None:
    problem = find_problem(message)
    if problem:
        raise StreamRefused(grpc.StatusCode.INVALID_ARGUMENT, f"invalid report: {problem}")


def _refusal(refused: ReportRefused) -> StreamRefused:
    code = grpc.StatusCode.ABORTED if refused.passing else grpc.StatusCode.ALREADY_EXISTS
    return StreamRefused(code, str(refused))


def _host(peer: str) -> str:
    """``ipv4:127.0.0.1:40000`` without the port, which differs for every connection."""
    return peer.rpartition(":")[0]
