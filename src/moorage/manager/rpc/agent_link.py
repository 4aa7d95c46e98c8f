"""Agent link: applies agents' reports and sends their orders. Both are level-triggered, so a lost
message costs only time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from heapq import nsmallest
from itertools import islice
from weakref import WeakValueDictionary

import grpc
import structlog

import moorage
from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.tasks import cancel_and_wait, raise_failure, spawn
from moorage.common.link import codec, usage_codec
from moorage.common.link.messages import Contact, FullReportRequest, Report, ReportDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.model.errors import StoreUnavailable
from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.versions import incompatibility
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.rpc import orders_polling
from moorage.manager.rpc.agent_stream import AgentStream, LinkSettings, StreamRefused
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.large_messages import decode, encode
from moorage.manager.rpc.orders_polling import OrdersPolling
from moorage.manager.rpc.peer_addresses import PeerAddresses
from moorage.manager.rpc.reach_control import ReachControl
from moorage.manager.rpc.refusal_log import RefusalLog
from moorage.manager.rpc.report_interval import ReportInterval
from moorage.manager.rpc.stream_wakeups import StreamWakeups
from moorage.manager.rpc.usage_sink import NO_USAGE, UsageSink
from moorage.manager.store import ReportRefused, Store, Topic

log = structlog.get_logger("moorage.link")

# Number of agents read per run. Any others are read in later runs, because reading a thousand at
# once would block everything else.
READ_AT_ONCE = 500
# Kernels that were reported as ended are removed with the next orders, or after this many seconds.
PRUNE_DELAY_S = 0.5
# A report that was still being applied when its stream ended may attach the agent again, so the
# agent is then detached once more.
DETACH_AGAIN_S = 1.0
# An agent that was asked to switch to another manager but stayed is asked again after this many
# seconds. It may have a reason to stay, or run an earlier release.
HAND_OVER_AGAIN_S = 600.0
# Seconds between two checks for revoked proxies if no notification arrives.
_REVOKED_S = 30.0

Context = grpc.aio.ServicerContext[agent_pb2.Report, agent_pb2.ManagerMessage]
_NOTHING_TOLD = LinkSettings(
    heartbeat_s=0.0, managers=(), proxies=(), revoked_proxies=(), holds_usage=False
)


class AgentLinks:
    """All agents connected to this manager. An agent's newest stream replaces its older one. The
    store decides, across all managers, which stream is newest when it applies a stream's first
    report.

    One loop reads the orders of all agents whose orders may have changed, in one query, and polls
    the others. Each agent's stream writes only the orders offered to it. ``addresses``: the
    addresses that agents may report; by default only the source address of their links. ``usage``
    receives their usage. ``on_connect`` is called with each new stream and its connection in gRPC's
    notation.
    """

    def __init__(
        self,
        store: Store,
        metrics: ManagerMetrics,
        clock: Clock,
        addresses: PeerAddresses | None = None,
        *,
        usage: UsageSink = NO_USAGE,
        on_connect: Callable[[AgentStream, str], None] = lambda stream, peer: None,
    ) -> None:
        self._on_connect = on_connect
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._usage = usage
        self._reach = ReachControl(addresses or PeerAddresses(), store)
        self._report_interval = ReportInterval()
        self._managers = tuple[str, ...]()
        self._revoked_proxies: tuple[str, ...] = ()  # by their peer ids
        self._streams: dict[AgentId, AgentStream] = {}

        # Agents whose orders must be read, with the kernels concerned, or None for all.
        self._changed: dict[AgentId, set[KernelId] | None] = {}
        # Newest ``sent_at`` of stored reports that wait for a contact. It is sent after orders that
        # were read after it was stored.
        self._contacts: dict[AgentId, int] = {}

        # Streams that have ended, by agent: their number, and the time (monotonic seconds).
        self._ended: dict[AgentId, tuple[int, float]] = {}
        self._apply_locks: WeakValueDictionary[AgentId, asyncio.Lock] = WeakValueDictionary()

        # Kernels that have ended but are still in orders, and the timer that prunes them.
        self._to_prune: dict[AgentId, set[KernelId]] = {}
        self._prune_timer: asyncio.TimerHandle | None = None
        self._refusals = RefusalLog()
        self._waking = StreamWakeups()
        self._polling = OrdersPolling(clock.monotonic())
        interval_s = orders_polling.POLL_S / orders_polling.POLL_PARTS
        self.loop = Loop("orders", self.run_once, interval_s=interval_s, clock=clock, bursts=True)
        self.revoked_loop = Loop(
            "revoked-proxies", self._read_revoked, interval_s=_REVOKED_S, clock=clock
        )
        store.notifier.on_orders(self.orders_changed)
        store.notifier.on(Topic.PEERS, self.revoked_loop.nudge)

    def get(self, agent_id: str) -> AgentStream | None:
        return self._streams.get(AgentId(agent_id))

    def has(self, stream: AgentStream) -> bool:
        return self._streams.get(stream.agent_id) is stream

    def all(self) -> list[AgentStream]:
        return list(self._streams.values())

    def orders_changed(self, kernels: Collection[str] | None) -> None:
        """Note that orders changed. ``kernels``: each as ``agent/kernel``, or ``agent`` for all of
        its kernels. None means that any may have changed."""
        for name in self._streams if kernels is None else kernels:
            agent_id, _, kernel_id = name.partition("/")
            if AgentId(agent_id) in self._streams:
                self._read_orders(AgentId(agent_id), {KernelId(kernel_id)} if kernel_id else None)
        self.loop.nudge()

    def _read_orders(self, agent_id: AgentId, kernels: set[KernelId] | None) -> None:
        """Read orders in the next run, for these kernels or, with None, for all."""
        known = self._changed.setdefault(agent_id, kernels)
        if known is not None and kernels is not known:
            self._changed[agent_id] = None if kernels is None else known | kernels

    async def run_once(self) -> None:
        await self._detach_ended()
        if polled := self._polling.due(self._streams, self._clock.monotonic()):
            self._changed |= dict.fromkeys(polled)
            self._announce(polled)

        # A stream gets only orders that were read after its first report was applied. That report
        # may show that a kernel is gone; older orders would name the kernel again, and it would run
        # a second time.
        changed = {a: self._changed.pop(a) for a in list(islice(self._changed, READ_AT_ONCE))}
        if self._changed:
            self.loop.nudge()

        contacts = {a: sent_at for a in changed if (sent_at := self._contacts.pop(a, 0))}
        streams = {a: stream for a in changed if (stream := self._streams.get(a)) is not None}
        if not streams:
            return

        with_given_up = [agent_id for agent_id, stream in streams.items() if stream.needs_given_up]
        whole = list[AgentId]()
        some = dict[AgentId, set[KernelId]]()
        for agent_id, stream in streams.items():
            stream.begin_reading_orders()
            kernels = changed[agent_id]
            pruned = self._to_prune.pop(agent_id, set())
            if kernels is None or not stream.has_orders:
                whole.append(agent_id)
            else:
                some[agent_id] = kernels | pruned

        try:
            # Taken before the read, because a delayed read must not give old orders a newer
            # generation.
            generation = await self._store.orders.next_generation()
            found = await self._store.orders.of_many(whole, with_given_up) if whole else {}
            found |= await self._store.orders.of_kernels(some)

            for agent_id, stream in streams.items():
                stream.offer(found[agent_id], generation)
                if agent_id in contacts:
                    stream.send_request(Contact(contacts[agent_id]))
        except StoreUnavailable:
            for agent_id in streams:
                self._read_orders(agent_id, some.get(agent_id))
            for agent_id in with_given_up:
                streams[agent_id].look_for_given_up()

            raise
        finally:
            for stream in streams.values():
                stream.end_reading_orders()

    def set_managers(self, managers: tuple[str, ...], proxies: tuple[str, ...] = ()) -> None:
        """Set the managers that share the agents. Agents receive their addresses with their orders,
        as well as the addresses at which ``proxies`` accept connections from agents that only dial
        out."""
        self._managers = managers
        self._reach.set_proxies(proxies)
        self._waking.wake(stream.wake for stream in self._streams.values())

    async def _read_revoked(self) -> None:
        """Send the revoked proxies to the agents, which close their connections to them."""
        revoked = await self._store.peers.revoked("proxy")
        if revoked != self._revoked_proxies:
            self._revoked_proxies = revoked
            self._waking.wake(stream.wake for stream in self._streams.values())

    def hand_over(self, manager: str, count: int) -> list[AgentStream]:
        """Ask this number of agents to switch to the manager at this address, starting with those
        that have the fewest kernels, because their first reports there are the smallest.

        An agent that stays is asked again after a while. Returns their streams."""
        now = self._clock.monotonic()
        free = (s for s in self._streams.values() if now - s.asked_at > HAND_OVER_AGAIN_S)
        chosen = nsmallest(count, free, key=lambda s: (s.ordered_kernels, s.agent_id))
        for stream in chosen:
            stream.hand_over(manager, now)

        return chosen

    def set_database(self, available: bool) -> None:
        """Notify the agents whether this manager has its database. Without it, they may switch to
        another manager."""
        for stream in self._streams.values():
            stream.send_request(FullReportRequest(no_database=not available))

    def begin_again(self) -> None:
        """End all streams, because the database may have lost commits.

        Agents reconnect, and get no orders before their first report has shown what they run."""
        streams = list(self._streams.values())
        self._streams = {}
        for stream in streams:
            stream.refuse(
                StreamRefused(grpc.StatusCode.ABORTED, "the database has failed over: reconnect")
            )

    async def _detach_ended(self) -> None:
        """Record which agents are no longer connected, so that nothing is placed on them."""
        now = self._clock.monotonic()
        ended = {a: stream for a, stream in self._ended.items() if a not in self._streams}
        if ended:
            await self._store.managers.detach({a: number for a, (number, _) in ended.items()})
        self._ended = {a: stream for a, stream in ended.items() if now - stream[1] < DETACH_AGAIN_S}

    def _announce(self, agents: Collection[AgentId]) -> None:
        """Send these agents their report interval, a few agents at a time, if it differs from the
        last one sent."""
        interval = self._report_interval
        interval.adapt(max(1, len(self._managers)) * len(self._streams))
        self._metrics.set_heartbeat_interval(interval.heartbeat_s)
        for agent_id in agents:
            settings = self._streams[agent_id].settings
            if settings is not None and settings.heartbeat_s != interval.heartbeat_s:
                self._streams[agent_id].wake.set()

    def _schedule_prune(self, update: AgentUpdate) -> None:
        self._to_prune.setdefault(update.agent_id, set()).update(update.ended)
        if self._prune_timer is None:
            self._prune_timer = asyncio.get_running_loop().call_later(PRUNE_DELAY_S, self._prune)

    def _prune(self) -> None:
        self._prune_timer = None
        untidy = self._to_prune
        self._to_prune = {}
        for agent_id, kernels in untidy.items():
            self._read_orders(agent_id, kernels)
        self.loop.nudge()

    async def serve(
        self, reports: AsyncIterator[agent_pb2.Report], context: Context, caller: LinkCaller
    ) -> None:
        """Serve one call of ``Attach``, from the first report until either side disconnects or a
        newer stream replaces it."""
        try:
            wire = await anext(reports)
        except StopAsyncIteration:
            return

        try:
            stream = AgentStream(wire, caller, await decode(wire))
            await self._reach.bind(stream, context.peer())
            try:
                await self._serve(stream, reports, context)
            finally:
                self.close_stream(stream)
        except StreamRefused as refused:
            self._refusals.refused(context.peer(), refused.message)
            await context.abort(refused.code, refused.message)
        except StoreUnavailable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    def _take_over(self, stream: AgentStream) -> None:
        """Take over the agent. Its first report has been applied, so this stream replaces all its
        other streams."""
        older = self._streams.get(stream.agent_id)
        if older is not None:
            if older.incarnation != stream.incarnation:
                log.warning(
                    "another process uses the same agent id: the older one is fenced",
                    agent=stream.agent_id,
                    older=older.incarnation,
                    newer=stream.incarnation,
                    next_step="if both are running, stop one of them or give it another agent.id",
                )
                older.refuse(_refusal(ReportRefused.by_another_process(stream.agent_id)))

            older.wake.set()

        stream.establish()
        self._streams[stream.agent_id] = stream
        self._metrics.set_links(len(self._streams))

    def close_stream(self, stream: AgentStream) -> None:
        if not stream.is_established:
            return
        if self._streams.get(stream.agent_id) is stream:
            del self._streams[stream.agent_id]
            self._ended[stream.agent_id] = stream.first.stream, self._clock.monotonic()
            self.loop.nudge()
        self._metrics.set_links(len(self._streams))
        log.info("agent disconnected", agent=stream.agent_id)

    async def _serve(
        self,
        stream: AgentStream,
        reports: AsyncIterator[agent_pb2.Report],
        context: Context,
    ) -> None:
        first = stream.first
        await self.apply_report(stream, first)
        log.info("agent connected", agent=stream.agent_id, kernels=len(first.kernels))
        self._on_connect(stream, context.peer())

        if outdated := incompatibility(moorage.__version__, first.info.version):
            log.warning(
                "the agent's version may be incompatible", agent=stream.agent_id, why=outdated
            )

        self._refusals.accepted(context.peer())
        reader = spawn(f"link.read.{stream.agent_id}", self._read(stream, reports))
        try:
            await self._write(stream, reader, context)
        finally:
            await cancel_and_wait(reader)

        if stream.refused is not None:
            raise stream.refused

        # the agent learns that its report could not be applied, and reconnects
        raise_failure(reader)

    async def apply_report(self, stream: AgentStream, message: Report | ReportDelta) -> bool:
        """Apply a report. Returns False, without changing anything, if a newer stream from the
        agent to this manager has replaced this one.

        Raises ``StreamRefused`` if another manager has a newer stream."""
        async with self._apply_locks.setdefault(stream.agent_id, asyncio.Lock()):
            if stream.is_established and self._streams.get(stream.agent_id) is not stream:
                return False

            begun = self._clock.monotonic()
            # The first report of a stream precedes its orders, so their generations are greater.
            self._store.orders.note_generation(message.seen_generation)
            update = stream.update(message, begun)
            if update.refuses_orders:
                self._overtake(stream)

            try:
                changed = await self._store.reports.apply(update)
            except ReportRefused as refused:
                raise _refusal(refused) from None

            if not stream.is_established:
                self._take_over(stream)

        if message.sent_at:
            # A kernel whose lease has expired is withdrawn first, because it may be waiting for
            # contact before it starts.
            self._contacts[stream.agent_id] = message.sent_at
            self.orders_changed([stream.agent_id])

        now = self._clock.monotonic()
        if changed:
            self._report_interval.record(now - begun)
        if update.ended:
            self._schedule_prune(update)
        if update.whole or message.orders_wanted:
            if update.whole:
                stream.look_for_given_up()
            self.orders_changed([stream.agent_id])
        if self._store.reports.needs_full_report(stream.agent_id):
            stream.request_full_report(now)

        self._metrics.report_applied()
        return True

    def _overtake(self, stream: AgentStream) -> None:
        """Send orders that an agent of an earlier release accepts, although it does not report the
        generation that it has seen.

        Generations start at the time, in milliseconds, at which the database was created, and grow
        more slowly than time."""
        log.error("an agent refuses its orders: sending newer ones", agent=stream.agent_id)
        self._store.orders.note_generation(round(self._clock.now().timestamp() * 1000))
        self.orders_changed([stream.agent_id])

    async def _read(self, stream: AgentStream, reports: AsyncIterator[agent_pb2.Report]) -> None:
        try:
            async for wire in reports:
                message = stream.receive(wire, self._clock.monotonic(), await decode(wire))
                if wire.HasField("usage") and wire.usage.agent_id == stream.agent_id:
                    self._usage.take(usage_codec.usage_from_wire(wire.usage))
                holds_usage = stream.settings is not None and stream.settings.holds_usage
                if holds_usage != self._usage.is_full:
                    stream.wake.set()
                if message is not None and not await self.apply_report(stream, message):
                    return
        except StreamRefused as refused:
            stream.refuse(refused)
        except StoreUnavailable as error:
            log.warning("report not applied: the agent will send it again", error=str(error))
        finally:
            stream.wake.set()

    def _settings_for(self, stream: AgentStream) -> LinkSettings:
        return LinkSettings(
            heartbeat_s=self._report_interval.heartbeat_s,
            managers=self._managers,
            proxies=self._reach.proxies if stream.dials_out else (),
            revoked_proxies=self._revoked_proxies,
            holds_usage=self._usage.is_full,
        )

    async def _write(
        self, stream: AgentStream, reader: asyncio.Task[None], context: Context
    ) -> None:
        while not reader.done() and self._streams.get(stream.agent_id) is stream:
            stream.wake.clear()
            requests = stream.take_requests()
            message = stream.next_message(self._clock.monotonic())
            settings = self._settings_for(stream)
            told = stream.settings
            if message is not None or told not in (None, settings):
                wire = agent_pb2.ManagerMessage()
                if message is not None:
                    wire = await encode(message)
                    wire.report_pause_ms = round(1000 * self._report_interval.pause_s)
                    wire.report_deltas = True

                _tell(wire, settings, told or _NOTHING_TOLD)
                stream.note_settings(settings)
                await context.write(wire)

            for request in requests:
                await context.write(codec.manager_message_to_wire(request))

            await stream.wake.wait()


def _tell(wire: agent_pb2.ManagerMessage, settings: LinkSettings, told: LinkSettings) -> None:
    if settings.managers != told.managers:
        wire.managers.extend(settings.managers)

    proxies = settings.proxies, settings.revoked_proxies
    if proxies != (told.proxies, told.revoked_proxies):
        wire.dialout.addresses[:] = settings.proxies
        wire.dialout.revoked[:] = settings.revoked_proxies
        wire.dialout.SetInParent()

    wire.hold_usage = settings.holds_usage
    wire.heartbeat_ms = round(1000 * settings.heartbeat_s)


def _refusal(refused: ReportRefused) -> StreamRefused:
    code = grpc.StatusCode.ABORTED if refused.passing else grpc.StatusCode.ALREADY_EXISTS
    return StreamRefused(code, str(refused))
