"""The agent's side of the gRPC link: reports up, orders down (whole, then deltas), logs when asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace

import grpc
import structlog

from moorage.agent.execution.commands import OpenExec, refuse, serve_exec
from moorage.agent.execution.workspaces import AnswerWorkspaces, no_workspaces
from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link import codec, usage_codec
from moorage.common.link.dial import Dialer
from moorage.common.link.exchange import OrdersIn, ReportsOut
from moorage.common.link.messages import (
    ExecRequest,
    LogRequest,
    Orders,
    OrdersDelta,
    Report,
    WholeReportWanted,
    WorkspaceRequest,
)
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.model.errors import ConfigError, MoorageError
from moorage.common.model.usage import UsageReport

log = structlog.get_logger("moorage.agent.link.client")

MAX_MESSAGE = 64 * 1024 * 1024
OPTIONS = [
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # A manager that vanished without a word is noticed after 5 + 4 s. The manager must allow such pings:
    # grpc.http2.min_ping_interval_without_data_ms below that.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),  # counts beside the former, and is a minute if left out
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Every attempt is new: our own backoff decides, not one inside a connection that is shared.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
]
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.2, 5.0
# Whoever was replaced, or reports what cannot be taken in, changes nothing by coming again soon.
_REFUSED_S = 30.0
_REFUSED = (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT)
# Changes come in bursts. The first of a burst goes at once; then there is a pause of ten times what a report
# costs, within these bounds: reporting takes at most a tenth of a CPU however many kernels there are. And a
# manager that has its hands full asks for a longer one.
_PAUSE_S = (0.002, 0.1)
_LONGEST_REST_S = 1.0
_CHUNK = 65_536
_LOG_DEADLINE_S = 300.0  # of a log that is not followed
_USAGE_S = 4.0
_BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


class Link:
    """Dials by ``dialer`` for as long as ``run`` runs.

    ``streams`` numbers its connections (``Report.stream``). ``report`` makes the newest whole report;
    ``take`` takes orders in and says whether it did; ``logs`` opens a kernel's log, ``execs`` runs a command
    in one. ``connected`` is called when the first orders of a connection were taken in, and ``disconnected``
    when that connection has ended.
    """

    def __init__(
        self,
        dialer: Dialer,
        *,
        clock: Clock,
        interval_s: float,
        streams: Iterator[int],
        report: Callable[[], Report],
        take: Callable[[Orders], bool],
        logs: Callable[[LogRequest], AsyncGenerator[bytes, None]],
        execs: OpenExec = refuse,
        workspaces: AnswerWorkspaces = no_workspaces,
        connected: Callable[[], None] = lambda: None,
        disconnected: Callable[[], None] = lambda: None,
    ) -> None:
        self._dialer, self._clock, self._interval_s = dialer, clock, interval_s
        self._report, self._take, self._logs, self._execs = report, take, logs, execs
        self._workspaces = workspaces
        self._streams, self._stream = streams, 0
        self._connected, self._disconnected = connected, disconnected
        self._dirty = asyncio.Event()
        self._due: asyncio.TimerHandle | None = None
        self._leaving = asyncio.Event()
        self._sent_last = asyncio.Event()
        # Whether it is connected, and whether a manager has given orders there.
        self._open, self._obeyed = False, False
        self._said = ""
        self._out, self._in, self._orders_wanted = ReportsOut(), OrdersIn(), False
        self._rest_s = 0.0
        self._stub: AgentLinkStub | None = None

    @property
    def connected(self) -> bool:
        """Whether a manager has given orders on this connection."""
        return self._stub is not None and self._obeyed

    async def send_usage(self, report: UsageReport) -> bool:
        """Whether the manager took it. Not connected, or not taken soon: it did not."""
        if self._stub is None or not self.connected:
            return False
        wire = usage_codec.usage_to_wire(report)
        try:
            await self._stub.SendUsage(wire, metadata=self._dialer.metadata, timeout=_USAGE_S)
        except _BROKEN:
            return False
        return True

    def changed(self, within_s: float = 0.0) -> None:
        """There is something new to report, which may wait so long for other news."""
        if within_s <= 0:
            self._dirty.set()
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + within_s
        if self._due is None or due < self._due.when():
            self._not_due()
            self._due = loop.call_at(due, self._dirty.set)

    def _not_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    async def run(self) -> None:
        backoff = _FIRST_BACKOFF_S
        while not self._leaving.is_set():
            self._obeyed = False
            try:
                await self._attach()
                self._complain("the manager ended the connection")
            except ConfigError as error:
                self._complain(str(error))
            except grpc.aio.AioRpcError as error:
                self._complain(_explain(self._dialer, error))
                if error.code() in _REFUSED:
                    await asyncio.sleep(_REFUSED_S * self._clock.jitter(0.25))
                    continue
            if self._obeyed:
                backoff = _FIRST_BACKOFF_S
            await asyncio.sleep(backoff * self._clock.jitter(0.25))
            backoff = min(_LONGEST_BACKOFF_S, backoff * 2)

    async def farewell(self, timeout_s: float = 2.0) -> None:
        """Send a last report and give the manager a moment to take it in. Returns at once when not
        connected. A manager that has a report and has not answered it yet may place kernels here, too."""
        if not self._open:
            return
        self._leaving.set()
        self._dirty.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._sent_last.wait()
        except TimeoutError:
            log.warning("the manager did not take the last report")

    def _complain(self, text: str) -> None:
        # Once per cause, not once per attempt.
        if text != self._said and not self._leaving.is_set():
            log.warning("not connected to the manager, trying again", manager=self._dialer.target, why=text)
        self._said = text

    async def _attach(self) -> None:
        async with self._dialer.channel(OPTIONS) as channel:
            stub = AgentLinkStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Attach(metadata=self._dialer.metadata)
            # What was said is known to the other end of this stream only.
            self._out, self._in, self._orders_wanted = ReportsOut(), OrdersIn(), False
            self._rest_s = 0.0
            self._stream = next(self._streams)
            self._stub = stub
            sender = spawn("link.send", self._send(call))
            followers: set[asyncio.Task[None]] = set()
            try:
                async for wire in call:
                    message = _decode(wire)
                    if isinstance(message, Orders | OrdersDelta):
                        self._rest_s = min(wire.report_rest_ms / 1000, _LONGEST_REST_S)
                        self._receive(message)
                    elif isinstance(message, WholeReportWanted):
                        self._out.want_whole()
                        self._dirty.set()
                    elif isinstance(message, ExecRequest):
                        work = serve_exec(stub, self._dialer.metadata, message, self._execs)
                        task = spawn(f"link.exec.{message.request_id}", work)
                        followers.add(task)
                        task.add_done_callback(followers.discard)
                    elif isinstance(message, WorkspaceRequest):
                        task = spawn(f"link.workspaces.{message.request_id}", self._tell(stub, message))
                        followers.add(task)
                        task.add_done_callback(followers.discard)
                    elif message is not None:
                        task = spawn(f"link.logs.{message.request_id}", self._send_logs(stub, message))
                        followers.add(task)
                        task.add_done_callback(followers.discard)
            finally:
                self._stub, self._open = None, False
                if self._obeyed:
                    self._disconnected()
                await cancel_and_wait(sender, *followers)
                call.cancel()
                if self._leaving.is_set():
                    self._sent_last.set()

    def _receive(self, message: Orders | OrdersDelta) -> None:
        orders = self._in.take(message)
        self._orders_wanted = orders is None
        if orders is None:
            log.warning("the orders have drifted: asking for them whole", generation=message.generation)
            self._dirty.set()
        else:
            self._obey(orders)

    def _obey(self, orders: Orders) -> None:
        if not self._take(orders):
            log.error(
                "refusing orders that are older than those obeyed before",
                generation=orders.generation,
                next_step="if the manager's database was replaced, stop this agent, remove agent.json from "
                "its state directory, and start it: kernels that are not ordered are then ended",
            )
            return
        if not self._obeyed:
            self._obeyed, self._said = True, ""
            log.info("connected to the manager", manager=self._dialer.target, generation=orders.generation)
            self._connected()

    async def _send(
        self, call: grpc.aio.StreamStreamCall[agent_pb2.Report, agent_pb2.ManagerMessage]
    ) -> None:
        try:
            await call.wait_for_connection()
            self._open = True
            while True:
                self._dirty.clear()
                self._not_due()
                leaving, begun = self._leaving.is_set(), self._clock.monotonic()
                report = replace(self._report(), stream=self._stream, orders_wanted=self._orders_wanted)
                await call.write(codec.report_to_wire(self._out.next(report)))
                if leaving:
                    await call.done_writing()
                    return
                sent = self._clock.monotonic()
                try:
                    async with asyncio.timeout(self._interval_s):
                        await self._dirty.wait()
                except TimeoutError:
                    continue
                pause = max(min(max(10 * (sent - begun), _PAUSE_S[0]), _PAUSE_S[1]), self._rest_s)
                await asyncio.sleep(max(0.0, sent + pause - self._clock.monotonic()))
        except _BROKEN:
            pass  # the reading side says what happened

    async def _tell(self, stub: AgentLinkStub, request: WorkspaceRequest) -> None:
        answer = await self._workspaces(request)
        try:
            await stub.SendWorkspaces(answer, metadata=self._dialer.metadata, timeout=_USAGE_S)
        except _BROKEN:
            pass  # who asked has been told that nobody answered

    async def _send_logs(self, stub: AgentLinkStub, request: LogRequest) -> None:
        timeout_s = None if request.follow else _LOG_DEADLINE_S
        call = stub.SendLogs(metadata=self._dialer.metadata, timeout=timeout_s)
        me = asyncio.current_task()
        assert me is not None
        # The manager ends the call when its reader has left: then there may be nothing to write for long.
        call.add_done_callback(lambda _: me.cancel())

        def chunk(data: bytes = b"", error: str = "") -> agent_pb2.LogChunk:
            return agent_pb2.LogChunk(request_id=request.request_id, data=data, error=error)

        try:
            await call.write(chunk())  # says whose log this will be, even if it is empty for long
            try:
                async with aclosing(self._logs(request)) as pieces:
                    async for data in pieces:
                        for at in range(0, len(data), _CHUNK):
                            await call.write(chunk(data[at : at + _CHUNK]))
            except (MoorageError, OSError) as error:
                await call.write(chunk(error=str(error)))
            await call.done_writing()
            await call
        except _BROKEN:
            pass
        finally:
            call.cancel()


def _decode(wire: agent_pb2.ManagerMessage) -> codec.ManagerMessage | None:
    try:
        return codec.manager_message_from_wire(wire)
    except ValueError as error:
        log.error("a message of the manager is not understood, ignoring it", error=str(error))
        return None


def _explain(dialer: Dialer, error: grpc.aio.AioRpcError) -> str:
    code, details = error.code(), error.details()
    if (words := dialer.explain(error)) is not None:
        return words
    if code in _REFUSED:
        return f"it refuses this agent, which tries again each {_REFUSED_S:.0f} s: {details}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"nothing answers at {dialer.target}: {details}"
    return f"{code.name}: {details}"
