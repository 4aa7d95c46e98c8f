"""Client of the agent link: a gRPC stream with reports up and orders down, and calls for logs,
commands, workspaces and usage.

It reconnects with backoff as long as it runs. Each stream starts with the full state in both
directions and continues with deltas (``common.link.sync``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Never

import grpc
import structlog

from moorage.agent.execution.commands import RunCommand, no_commands, serve_exec
from moorage.agent.execution.workspaces import HandleWorkspaceRequest, no_workspaces
from moorage.agent.kernel.leases import KernelLeases
from moorage.agent.link import answers
from moorage.agent.link.connection import (
    OPTIONS,
    REFUSED,
    REFUSED_BACKOFF_S,
    decode,
    explain,
    if_many,
)
from moorage.agent.link.departure import Departure
from moorage.common.aio.clock import Clock
from moorage.common.aio.pauses import AFTER_REPORT
from moorage.common.aio.tasks import (
    cancel_and_wait,
    cancel_requested,
    raise_failure,
    raise_if_cancelled,
    spawn,
)
from moorage.common.link import usage_codec
from moorage.common.link.dial import BROKEN, Dialer
from moorage.common.link.messages import (
    Contact,
    ExecRequest,
    FullReportRequest,
    LogPiece,
    LogRequest,
    Orders,
    OrdersDelta,
    Report,
    ReportDelta,
    WorkspaceRequest,
)
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.link.sync import OrdersReceiver, ReportSender
from moorage.common.model.errors import ConfigError
from moorage.common.model.resource_usage import UsageReport

log = structlog.get_logger("moorage.agent.link.client")

# Changes arrive in bursts. The first change in a burst is reported immediately, followed by a
# pause. A busy manager asks for a longer pause, up to this.
_MAX_REQUESTED_PAUSE_S = 1.0
_MAX_REQUESTED_INTERVAL_S = 600.0
# The agent leaves a manager whose connection works but which reads no reports for this long.
_WRITE_TIMEOUT_S = 60.0


MakeUsage = Callable[[], UsageReport]


@dataclass(frozen=True, slots=True)
class _WaitingUsage:
    make: MakeUsage
    is_sent: asyncio.Future[bool]


class LinkClient:
    """The client. ``run`` dials through ``dialer`` until it is cancelled. After a shutdown notice,
    it waits to be cancelled. A supervisor restarts it.

    ``stream_numbers`` numbers the streams (``Report.stream``). ``make_report(whole)`` returns the
    full report, or what may have changed since its last call. ``apply_orders`` returns False for
    orders that it refuses. Deltas follow full orders. ``on_connect`` is called when the first
    orders of a stream have been applied, and ``on_disconnect`` when that stream has ended.
    ``leases`` ask for contact, and contact renews them. ``stub`` belongs to the current connection.
    ``on_proxies`` is called with the proxies to dial out to and the peer ids of revoked proxies.
    """

    def __init__(
        self,
        dialer: Dialer,
        *,
        clock: Clock,
        interval_s: float,
        stream_numbers: Iterator[int],
        make_report: Callable[[bool], Report | ReportDelta],
        apply_orders: Callable[[Orders | OrdersDelta], bool],
        open_log: Callable[[LogRequest], AsyncGenerator[bytes | LogPiece, None]],
        run_command: RunCommand = no_commands,
        handle_workspace_request: HandleWorkspaceRequest = no_workspaces,
        on_connect: Callable[[], None] = lambda: None,
        on_disconnect: Callable[[], None] = lambda: None,
        leases: KernelLeases | None = None,
        on_proxies: Callable[[tuple[str, ...], frozenset[str]], None] = lambda *_: None,
    ) -> None:
        self._on_proxies = on_proxies
        self._dialer = dialer
        self._clock = clock
        self._interval_s = interval_s
        self._make_report = make_report
        self._apply_orders = apply_orders
        self._open_log = open_log
        self._run_command = run_command
        self._handle_workspace_request = handle_workspace_request
        self._stream_numbers = stream_numbers
        self._stream_number = 0
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._leases = leases or KernelLeases(Path(), clock)  # does nothing without kernels
        self._report_due = asyncio.Event()
        self._report_timer: asyncio.TimerHandle | None = None
        self._shutting_down = asyncio.Event()
        self._notice_sent = asyncio.Event()

        # Whether the stream is open, and whether orders have been applied on it.
        self._is_open = False
        self._has_orders = False
        self._logged_causes: dict[str, str] = {}  # by manager
        self._reports = ReportSender()
        self._orders = OrdersReceiver()
        self._orders_wanted = False
        self._requested_pause_s = 0.0
        self._requested_interval_s = 0.0
        self._departure: Departure | None = None  # from the current stream, or from the last one

        # Whether the manager accepts usage in reports, and the usage for the next report.
        self._usage_in_reports = False
        self._usage: _WaitingUsage | None = None
        self._holds_usage = False
        self.stub: AgentLinkStub | None = None

    @property
    def connected(self) -> bool:
        """Return whether orders have been applied on the current stream."""
        return self.stub is not None and self._has_orders

    @property
    def wants_usage(self) -> bool:
        """False while usage waits for the next report, and while the manager has asked for none."""
        return self._usage is None and not self._holds_usage

    async def send_usage(self, make: MakeUsage) -> bool:
        """Send the usage that ``make`` returns. If the usage is sent with the next report, which
        may be up to ``interval_s`` away, ``make`` is called only then, so that the usage is
        current. False means that there is no connection, that it ended, or that the manager did not
        accept the usage in time."""
        if self.stub is None or not self.connected:
            return False
        if self._usage_in_reports:
            self._usage = _WaitingUsage(make, asyncio.get_running_loop().create_future())
            return await self._usage.is_sent

        wire = usage_codec.usage_to_wire(make())
        try:
            await self.stub.SendUsage(
                wire, metadata=self._dialer.metadata, timeout=answers.CALL_TIMEOUT_S
            )
        except BROKEN:
            return False

        return True

    def schedule_report(self, within_s: float = 0.0) -> None:
        """Schedule a report of a change, which may wait up to ``within_s`` seconds for other
        changes."""
        if within_s <= 0:
            self._report_due.set()
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + within_s
        if self._report_timer is None or due < self._report_timer.when():
            self._cancel_timer()
            self._report_timer = loop.call_at(due, self._report_due.set)

    def _follow(self, wire: agent_pb2.ManagerMessage) -> None:
        """Learn about other managers, and pause between reports as long as this manager asks. It
        must know the longest pause that the agent makes, because it takes three missing heartbeats
        for silence."""
        if wire.managers:
            self._dialer.learn(wire.managers)
        if wire.HasField("dialout"):
            self._on_proxies(tuple(wire.dialout.addresses), frozenset(wire.dialout.revoked))
        if wire.HasField("orders"):
            self._requested_pause_s = min(wire.report_pause_ms / 1000, _MAX_REQUESTED_PAUSE_S)

        if wire.HasField("heartbeat_ms"):
            before = self.interval_s
            self._usage_in_reports = True
            self._holds_usage = wire.hold_usage
            self._requested_interval_s = min(wire.heartbeat_ms / 1000, _MAX_REQUESTED_INTERVAL_S)
            self._dialer.redial.set_interval(self._requested_interval_s)
            if self.interval_s != before:
                self._report_due.set()

    @property
    def interval_s(self) -> float:
        """The longest pause between two reports."""
        return max(self._interval_s, self._requested_interval_s)

    def _cancel_timer(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None

    async def run(self) -> Never:
        while True:
            if self._shutting_down.is_set():
                await asyncio.Event().wait()

            self._has_orders = False
            try:
                await self._attach()
                if self._goes():
                    continue

                self._log_disconnect("the manager ended the connection")
            except ConfigError as error:
                self._log_disconnect(str(error))
            except TimeoutError:
                self._log_disconnect(
                    f"the manager has accepted no report for {_WRITE_TIMEOUT_S:.0f} s"
                )
            except grpc.aio.AioRpcError as error:
                raise_if_cancelled()
                self._log_disconnect(explain(self._dialer, error))
                if error.code() in REFUSED:
                    await asyncio.sleep(REFUSED_BACKOFF_S * self._clock.jitter(0.25))
                    continue

            if self._has_orders:
                self._dialer.redial.succeeded()

            await asyncio.sleep(self._dialer.redial.next_delay_s())

    def _goes(self) -> bool:
        """Whether the stream has ended because the agent is switching to another manager, which has
        already answered."""
        if self._departure is None or not self._departure.has_begun:
            return False
        self._dialer.redial.succeeded()
        self._dialer.redial.next_delay_s()
        log.info("switching to another manager", manager=self._dialer.target)
        return True

    async def send_shutdown_notice(self, timeout_s: float = 2.0) -> None:
        """Send a last report, and wait up to ``timeout_s`` until the manager has applied it.
        Returns immediately if no stream is open. An open stream is enough, even without orders,
        because a manager that has any report from this agent may place kernels on it."""
        if not self._is_open:
            return

        self._shutting_down.set()
        self._report_due.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._notice_sent.wait()
        except TimeoutError:
            log.warning("the manager did not confirm the last report")

    def _log_disconnect(self, cause: str) -> None:
        # Logged once per cause rather than once per attempt.
        manager = self._dialer.target
        if cause != self._logged_causes.get(manager) and not self._shutting_down.is_set():
            log.warning("not connected to the manager, trying again", manager=manager, why=cause)
        self._logged_causes[manager] = cause

    async def _attach(self) -> None:
        async with self._dialer.channel(OPTIONS) as channel:
            await self._dialer.admit(channel)
            stub = AgentLinkStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Attach(metadata=self._dialer.metadata)

            # Deltas refer to earlier messages of the same stream, so each stream starts afresh.
            self._reports = ReportSender()
            self._orders = OrdersReceiver()
            self._orders_wanted = False
            self._requested_pause_s = 0.0
            self._usage_in_reports = False
            self._holds_usage = False
            self._stream_number = next(self._stream_numbers)
            self.stub = stub
            sender = spawn("link.send", self._send_reports(call))
            sender.add_done_callback(lambda task: _end_with(task, call))
            requests: set[asyncio.Task[None]] = set()
            departure = Departure(self._dialer, self._clock, requests, call.cancel)
            self._departure = departure
            try:
                async for wire in call:
                    message = await decode(wire)
                    self._follow(wire)
                    if isinstance(message, Orders | OrdersDelta):
                        self._reports.allow_deltas(wire.report_deltas)
                        self._receive_orders(message)
                    elif isinstance(message, Contact):
                        self._leases.renew(message.sent_at)
                    elif isinstance(message, FullReportRequest):
                        departure.consider(message)
                        if not message.manager:
                            self._reports.force_full()
                            self._report_due.set()
                    elif message is not None:
                        task = self._serve(stub, message)
                        requests.add(task)
                        task.add_done_callback(requests.discard)
            except asyncio.CancelledError:
                raise_failure(sender)
                if not departure.has_begun or cancel_requested():
                    raise
            finally:
                self.stub = None
                self._is_open = False
                self._end_usage(is_sent=False)
                if self._has_orders:
                    self._on_disconnect()

                await departure.close()
                await cancel_and_wait(sender, *requests)
                call.cancel()
                if self._shutting_down.is_set():
                    self._notice_sent.set()

    def _serve(
        self, stub: AgentLinkStub, request: ExecRequest | LogRequest | WorkspaceRequest
    ) -> asyncio.Task[None]:
        metadata = self._dialer.metadata
        match request:
            case ExecRequest():
                work = serve_exec(stub, metadata, request, self._run_command)
                return spawn(f"link.exec.{request.request_id}", work)
            case WorkspaceRequest():
                work = answers.send_workspaces(
                    stub, metadata, request, self._handle_workspace_request
                )
                return spawn(f"link.workspaces.{request.request_id}", work)
            case LogRequest():
                work = answers.send_log(stub, metadata, request, self._open_log)
                return spawn(f"link.logs.{request.request_id}", work)

    def _receive_orders(self, message: Orders | OrdersDelta) -> None:
        self._orders_wanted = not self._orders.accept(message)
        if self._orders_wanted:
            log.warning(
                "a delta of the orders does not match: asking for full orders",
                generation=message.generation,
            )
            self._report_due.set()
            return

        if not self._apply_orders(message):
            # The manager continues above the newest generation that a full report names.
            self._orders.reject()
            self._orders_wanted = True
            log.error(
                "refusing orders that are older than those applied before",
                generation=message.generation,
                next_step="if this repeats, upgrade the manager: this release continues above the "
                "newest generation of its agents, even after the restore of a backup",
            )
            self._reports.force_full()
            self._report_due.set()

            return

        if not self._has_orders:
            self._has_orders = True
            self._logged_causes.clear()
            log.info(
                "connected to the manager",
                manager=self._dialer.target,
                generation=message.generation,
            )
            self._on_connect()

    async def _send_reports(
        self, call: grpc.aio.StreamStreamCall[agent_pb2.Report, agent_pb2.ManagerMessage]
    ) -> None:
        try:
            await call.wait_for_connection()
            self._is_open = True
            while True:
                self._report_due.clear()
                self._cancel_timer()
                shutting_down = self._shutting_down.is_set()
                started_at = self._clock.monotonic()
                report = self._next_report()
                message = await if_many(report.kernels, self._reports.next_message, report)
                has_usage = self._add_usage(message)
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await call.write(message)

                if has_usage:
                    self._end_usage(is_sent=True)
                if shutting_down:
                    await call.done_writing()
                    return

                sent_at = self._clock.monotonic()
                try:
                    # The jitter spreads out agents that have connected at the same moment.
                    interval_s = self.interval_s * self._clock.jitter(0.1) / 1.1
                    async with asyncio.timeout(min(interval_s, self._leases.due_in())):
                        await self._report_due.wait()
                except TimeoutError:
                    continue

                pause = AFTER_REPORT.after(sent_at - started_at, self._requested_pause_s)
                await asyncio.sleep(max(0.0, sent_at + pause - self._clock.monotonic()))
        except BROKEN:
            pass  # the reading side logs the cause

    def _add_usage(self, message: agent_pb2.Report) -> bool:
        """Add the waiting usage. An encoding error is raised to the sender of the usage and does
        not affect the report."""
        if self._usage is None:
            return False

        try:
            message.usage.CopyFrom(usage_codec.usage_to_wire(self._usage.make()))
        except (TypeError, ValueError) as error:
            self._end_usage(error)
            return False

        return True

    def _end_usage(self, failure: Exception | None = None, *, is_sent: bool = False) -> None:
        usage = self._usage
        self._usage = None
        if usage is None or usage.is_sent.done():
            return
        if failure is None:
            usage.is_sent.set_result(is_sent)
        else:
            usage.is_sent.set_exception(failure)

    def _next_report(self) -> Report | ReportDelta:
        report = self._make_report(self._reports.needs_full)
        interval_s = self.interval_s
        info = report.info
        sent_at = self._leases.request()
        assert info is not None
        if info.report_interval_s != interval_s:
            info = replace(info, report_interval_s=interval_s)
        report = replace(report, info=info, orders_wanted=self._orders_wanted, sent_at=sent_at)
        return replace(report, stream=self._stream_number) if isinstance(report, Report) else report


def _end_with(sender: asyncio.Task[None], call: Any) -> None:
    """End the stream if the sender fails, because a stream without reports is useless, and then
    reconnect."""
    if not sender.cancelled() and sender.exception() is not None:
        call.cancel()
