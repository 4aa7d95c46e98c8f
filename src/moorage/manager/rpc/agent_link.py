"""AgentLink: reports in, orders out. Both are whole truths, so a lost message costs nothing."""

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

# Without a notify, orders are looked at again after so long: of a part of the agents each time, as to look
# at a
# thousand at once holds up everything else.
POLL_S, PARTS = 5.0, 10
# What was reported ended is taken off the orders with the next ones, or after so long.
TIDY_S = 0.5
# Generations whose content we remember, to understand reports that answer them.
REMEMBERED = 64

Context = grpc.aio.ServicerContext[agent_pb2.Report, agent_pb2.ManagerMessage]


class _Refused(Exception):
    """Ends a stream with this status, and with these words for the agent's log."""

    def __init__(self, code: grpc.StatusCode, words: str) -> None:
        self.code, self.words = code, words
        super().__init__(words)


class AgentStream:
    """One agent's stream: what was sent to it, and what waits to be."""

    def __init__(self, first: Report, taking: asyncio.Lock, caller: Caller) -> None:
        self.agent_id, self.incarnation = first.info.agent_id, first.incarnation
        self._caller = caller
        self.taking = taking  # held while a report of this agent is taken in
        self.refused: _Refused | None = None
        self.nudged = asyncio.Event()
        self.nudged.set()
        self.requests: list[LogRequest | ExecRequest | WorkspaceRequest | FullReportRequest] = []
        self.heard = False  # its first report was taken in
        self.looking = False  # its orders are being looked up, and what they name is not known yet
        self._next: Orders | None = None
        self._orders, self._reports = OrdersSender(), ReportReceiver()
        self._sent: OrderedDict[int, frozenset[KernelId]] = OrderedDict()

    def check(self, message: Report | ReportDelta) -> None:
        """Each report, not only the first: who speaks, and for whom, must stay the same."""
        info = message.info
        if info is None:
            return
        if info.agent_id != self.agent_id:
            words = f"a stream of {self.agent_id!r} reports as {info.agent_id!r}"
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, words)
        if wrong := self._caller.may_be(info.agent_id, info.resource_group):
            raise _Refused(grpc.StatusCode.PERMISSION_DENIED, wrong)

    def ask(self, request: LogRequest | ExecRequest | WorkspaceRequest | FullReportRequest) -> None:
        self.requests.append(request)
        self.nudged.set()

    def take(self, message: Report | ReportDelta) -> Report | None:
        """The whole truth after this message; None: it has drifted, and was asked for again."""
        report = self._reports.apply(message)
        if report is None:
            log.warning("an agent's report has drifted: asking for the whole", agent=self.agent_id)
            self.ask(FullReportRequest())
        elif report.orders_wanted:
            self._orders.force_full()
        return report

    def has_changes(self, kernels: tuple[KernelSpec, ...]) -> bool:
        return self._next.kernels != kernels if self._next is not None else self._orders.has_changes(kernels)

    def offer(self, orders: Orders) -> None:
        """Send these next. What was offered before and not sent yet is not sent at all: the newest counts."""
        self._next = orders
        self.nudged.set()

    def sending(self) -> Orders | OrdersDelta | None:
        """What to put on the wire for the orders offered last; None: they were sent already."""
        orders, self._next = self._next, None
        if orders is None:
            return None
        message = self._orders.next_message(orders)
        self._sent[orders.generation] = frozenset(k.kernel_id for k in orders.kernels)
        while len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)
        return message

    def accepted(self, generation: int) -> frozenset[KernelId] | None:
        """The kernels that orders of this generation named.

        None if this stream did not send it, or if later ones name more, which may be taken in at any moment:
        those that were sent, those that wait to be (a slow agent), and those that are just being looked up.
        """
        named = self._sent.get(generation)
        if named is None or self.looking:
            return None
        later = [kernels for g, kernels in self._sent.items() if g > generation]
        if self._next is not None:
            later.append(frozenset(k.kernel_id for k in self._next.kernels))
        return named if all(kernels <= named for kernels in later) else None


class AgentLinks:
    """All attached agents of this manager; the newest stream of an agent replaces its older one. Which that
    is the store knows, for all managers: a stream speaks here once its first report was taken in.

    One loop looks up the orders of all agents whose orders may have changed, in one query, and of all agents
    within ``POLL_S``; each agent's stream only writes what it was offered.
    """

    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store, self._metrics, self._clock = store, metrics, clock
        self._pace = ReportInterval()
        self._attached: dict[AgentId, AgentStream] = {}
        self._dirty: set[AgentId] = set()
        self._taking: WeakValueDictionary[AgentId, asyncio.Lock] = WeakValueDictionary()
        # Agents that may forget what they reported ended, and what will see to them.
        self._untidy: set[AgentId] = set()
        self._tidying: asyncio.TimerHandle | None = None
        self._said: dict[str, str] = {}
        self._unpolled: list[AgentId] = []
        self._polled_at = clock.monotonic()
        self.loop = Loop("orders", self.run_once, interval_s=POLL_S / PARTS, clock=clock, rest=2.0)
        store.notifier.on_orders(self._heard)

    def get(self, agent_id: str) -> AgentStream | None:
        return self._attached.get(AgentId(agent_id))

    def all(self) -> list[AgentStream]:
        return list(self._attached.values())

    def _heard(self, agents: Collection[AgentId] | None) -> None:
        self._dirty.update(self._attached if agents is None else agents)
        self.loop.nudge()

    async def run_once(self) -> None:
        waited = self._clock.monotonic() - self._polled_at
        if waited >= 0.8 * POLL_S / PARTS:
            self._polled_at += waited
            self._dirty.update(self._next_part(waited))
        # Orders looked up before a stream's first report was taken in are not for it: that report may say
        # that a kernel is gone, and if it were ordered after that it would be run a second time.
        attached = {a: link for a in self._dirty if (link := self._attached.get(a)) is not None}
        self._untidy -= self._dirty
        self._dirty.clear()
        if not attached:
            return
        for link in attached.values():
            link.looking = True
        try:
            # Before the look: a tick that was held up must not give old orders a new generation.
            generation = await self._store.orders.next_generation()
            found = await self._store.orders.of_many(list(attached))
            for agent_id, link in attached.items():
                if link.has_changes(found[agent_id]):
                    link.offer(Orders(generation, found[agent_id]))
        except StoreUnavailable:
            self._dirty.update(attached)
            raise
        finally:
            for link in attached.values():
                link.looking = False

    def _next_part(self, waited_s: float) -> list[AgentId]:
        """Those whose turn it is to be looked at without a notify: the more, the longer nobody was."""
        count = ceil(len(self._attached) * min(1.0, waited_s / POLL_S))
        if len(self._unpolled) < count:
            self._unpolled += self._attached
        part, self._unpolled = self._unpolled[:count], self._unpolled[count:]
        return part

    def _tidy_later(self, agent_id: AgentId) -> None:
        self._untidy.add(agent_id)
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().call_later(TIDY_S, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        untidy, self._untidy = self._untidy, set()
        self._heard(untidy)

    async def serve(self, reports: AsyncIterator[agent_pb2.Report], context: Context, caller: Caller) -> None:
        """One call of ``Attach``, from the first report until either side leaves or a newer stream comes."""
        try:
            first = codec.report_from_wire(await anext(reports))
        except StopAsyncIteration:
            return
        try:
            if not isinstance(first, Report):
                raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "the first report of a stream must be whole")
            attached = self._admit(first, caller)
            try:
                await self._serve(attached, first, reports, context)
            finally:
                self._leave(attached)
        except _Refused as refused:
            self._complain(context.peer(), refused.words)
            await context.abort(refused.code, refused.words)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    def _admit(self, first: Report, caller: Caller) -> AgentStream:
        """A stream that may come to speak for its agent: that is for the store to say."""
        _check(first)
        agent_id = first.info.agent_id
        attached = AgentStream(first, self._taking.setdefault(agent_id, asyncio.Lock()), caller)
        attached.check(first)
        return attached

    def _take_over(self, attached: AgentStream) -> None:
        """Its first report was taken in, so no other stream speaks for the agent any more."""
        older = self._attached.get(attached.agent_id)
        if older is not None:
            if older.incarnation != attached.incarnation:
                log.warning(
                    "another process attaches under the same agent id: the older one is fenced",
                    agent=attached.agent_id, older=older.incarnation, newer=attached.incarnation,
                    next_step="if both run, stop one of them or give it another agent.id",
                )  # fmt: skip
                older.refused = _refusal(ReportRefused.by_another_process(attached.agent_id))
            older.nudged.set()
        attached.heard = True
        self._attached[attached.agent_id] = attached
        self._metrics.set_links(len(self._attached))

    def _leave(self, attached: AgentStream) -> None:
        if not attached.heard:
            return
        if self._attached.get(attached.agent_id) is attached:
            del self._attached[attached.agent_id]
        self._metrics.set_links(len(self._attached))
        log.info("agent detached", agent=attached.agent_id)

    async def _serve(
        self,
        attached: AgentStream,
        first: Report,
        reports: AsyncIterator[agent_pb2.Report],
        context: Context,
    ) -> None:
        attached.take(first)
        await self._observe(attached, first)
        log.info("agent attached", agent=attached.agent_id, kernels=len(first.kernels))
        if outdated := incompatibility(moorage.__version__, first.info.version):
            log.warning("an agent of a version that may not work", agent=attached.agent_id, why=outdated)
        self._heard([attached.agent_id])
        self._said.pop(_host(context.peer()), None)
        reader = spawn(f"link.read.{attached.agent_id}", self._read(attached, reports))
        try:
            await self._write(attached, reader, context)
        finally:
            await cancel_and_wait(reader)
        if attached.refused is not None:
            raise attached.refused

    def _complain(self, peer: str, words: str) -> None:
        # Whoever is refused comes again, every few seconds: once per cause is enough.
        host = _host(peer)
        if self._said.get(host) != words:
            log.warning("an agent is refused", peer=peer, why=words)
            self._said[host] = words
            while len(self._said) > 1000:
                del self._said[next(iter(self._said))]

    async def _observe(self, attached: AgentStream, report: Report) -> bool:
        """False: a newer stream speaks for this agent here, and nothing was changed. Raises ``_Refused`` if
        one does elsewhere."""
        async with attached.taking:
            if attached.heard and self._attached.get(attached.agent_id) is not attached:
                return False
            begun = self._clock.monotonic()
            try:
                changed = await self._store.reports.apply(report, attached.accepted(report.orders_generation))
            except ReportRefused as refused:
                raise _refusal(refused) from None
            if not attached.heard:
                self._take_over(attached)
            if changed:
                self._pace.took(self._clock.monotonic() - begun)
                self._tidy_later(attached.agent_id)
        self._metrics.report_applied()
        return True

    async def _read(self, attached: AgentStream, reports: AsyncIterator[agent_pb2.Report]) -> None:
        try:
            async for wire in reports:
                message = codec.report_from_wire(wire)
                _check(message)
                attached.check(message)
                report = attached.take(message)
                if report is None:
                    continue
                if not await self._observe(attached, report):
                    return
                if report.orders_wanted:
                    self._heard([attached.agent_id])
        except _Refused as refused:
            attached.refused = refused
        except StoreUnavailable as error:
            log.warning("report not taken in: the agent will send it again", error=str(error))
        finally:
            attached.nudged.set()

    async def _write(self, attached: AgentStream, reader: asyncio.Task[None], context: Context) -> None:
        while not reader.done() and self._attached.get(attached.agent_id) is attached:
            attached.nudged.clear()
            requests, attached.requests = attached.requests, []
            for request in requests:
                await context.write(codec.manager_message_to_wire(request))
            message = attached.sending()
            if message is not None:
                wire = codec.manager_message_to_wire(message)
                wire.report_pause_ms = round(1000 * self._pace.rest_s)
                await context.write(wire)
            await attached.nudged.wait()


def _check(message: Report | ReportDelta) -> None:
    wrong = find_problem(message)
    if wrong:
        raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, f"this report cannot be taken in: {wrong}")


def _refusal(refused: ReportRefused) -> _Refused:
    code = grpc.StatusCode.ABORTED if refused.passing else grpc.StatusCode.ALREADY_EXISTS
    return _Refused(code, str(refused))


def _host(peer: str) -> str:
    """``ipv4:127.0.0.1:40000`` without the port, which is another one each time."""
    return peer.rpartition(":")[0]
