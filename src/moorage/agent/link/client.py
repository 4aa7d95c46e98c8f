"""Client of the agent link: a gRPC stream with reports up and orders down, and calls for logs, commands,
workspaces and usage.

It reconnects with backoff for as long as it runs. Each stream begins with the full state in both directions
and continues with deltas (``common.link.sync``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import grpc
import structlog

from moorage.agent.execution.commands import RunCommand, no_commands, serve_exec
from moorage.agent.execution.workspaces import HandleWorkspaceRequest, no_workspaces
from moorage.agent.kernel.leases import KernelLeases
from moorage.common.aio.clock import Clock
from moorage.common.aio.pauses import AFTER_REPORT
from moorage.common.aio.tasks import cancel_and_wait, cancel_requested, raise_failure, spawn
from moorage.common.link import codec, usage_codec
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import (
    Contact,
    ExecRequest,
    FullReportRequest,
    LogRequest,
    Orders,
    OrdersDelta,
    Report,
    WorkspaceRequest,
)
from moorage.common.link.pb import agent_pb2
from moorage.common.link.pb.agent_pb2_grpc import AgentLinkStub
from moorage.common.link.sync import OrdersReceiver, ReportSender
from moorage.common.model.errors import ConfigError, MoorageError
from moorage.common.model.usage import UsageReport

log = structlog.get_logger("moorage.agent.link.client")

MAX_MESSAGE = 64 * 1024 * 1024
OPTIONS = [
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    # A manager that vanished silently is noticed after 5 + 4 s. The manager must allow such pings: its
    # grpc.http2.min_ping_interval_without_data_ms must be lower.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 4_000),
    ("grpc.http2.ping_timeout_ms", 4_000),  # applies beside the former; its default is a minute
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Each attempt gets a connection of its own, so that our backoff applies and not that of a shared one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.enable_retries", 0),
]
# An agent that was replaced, or whose report is invalid, gains nothing from an early retry.
_REFUSED_BACKOFF_S = 30.0
_REFUSED = (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT)
# Changes come in bursts. The first of a burst is reported at once, then follows a pause. A busy manager asks
# for a longer one, at most this.
_MAX_REQUESTED_PAUSE_S = 1.0
_CHUNK = 65_536
_LOG_TIMEOUT_S = 300.0  # for a log that is not followed
_CALL_TIMEOUT_S = 4.0
# A manager whose connection lives but which reads no reports for so long is left.
_WRITE_TIMEOUT_S = 60.0
_SEARCH_EVERY_S = 2.0  # for a manager that has its database
_BROKEN = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)


class LinkClient:
    """``run`` dials through ``dialer`` until it is cancelled; after a shutdown notice, it waits for that. A
    supervisor restarts it.

    ``stream_numbers`` numbers the streams (``Report.stream``). ``make_report`` returns the current full
    report. ``apply_orders`` returns False for orders that it refuses. ``on_connect`` is called when the first
    orders of a stream have been applied, and ``on_disconnect`` when that stream has ended. ``leases`` ask for
    contact, and are renewed by it.
    """

    def __init__(
        self,
        dialer: Dialer,
        *,
        clock: Clock,
        interval_s: float,
        stream_numbers: Iterator[int],
        make_report: Callable[[], Report],
        apply_orders: Callable[[Orders], bool],
        open_log: Callable[[LogRequest], AsyncGenerator[bytes, None]],
        run_command: RunCommand = no_commands,
        handle_workspace_request: HandleWorkspaceRequest = no_workspaces,
        on_connect: Callable[[], None] = lambda: None,
        on_disconnect: Callable[[], None] = lambda: None,
        leases: KernelLeases | None = None,
    ) -> None:
        self._dialer, self._clock, self._interval_s = dialer, clock, interval_s
        self._make_report, self._apply_orders, self._open_log = make_report, apply_orders, open_log
        self._run_command, self._handle_workspace_request = run_command, handle_workspace_request
        self._stream_numbers, self._stream_number = stream_numbers, 0
        self._on_connect, self._on_disconnect = on_connect, on_disconnect
        self._leases = leases or KernelLeases(Path(), clock)  # without kernels it does nothing
        self._report_due = asyncio.Event()
        self._report_timer: asyncio.TimerHandle | None = None
        self._shutting_down = asyncio.Event()
        self._notice_sent = asyncio.Event()
        # Whether the stream is open, and whether orders have been applied on it.
        self._is_open, self._has_orders = False, False
        self._logged_causes: dict[str, str] = {}  # by manager
        self._reports, self._orders, self._orders_wanted = ReportSender(), OrdersReceiver(), False
        self._requested_pause_s = 0.0
        self._leaving = False  # for another manager
        self._stub: AgentLinkStub | None = None

    @property
    def connected(self) -> bool:
        """Return whether orders have been applied on the current stream."""
        return self._stub is not None and self._has_orders

    async def send_usage(self, report: UsageReport) -> bool:
        """False: there is no connection, or the manager did not accept the report in time."""
        if self._stub is None or not self.connected:
            return False
        wire = usage_codec.usage_to_wire(report)
        try:
            await self._stub.SendUsage(wire, metadata=self._dialer.metadata, timeout=_CALL_TIMEOUT_S)
        except _BROKEN:
            return False
        return True

    def schedule_report(self, within_s: float = 0.0) -> None:
        """There is a change to report, which may wait up to ``within_s`` seconds for others."""
        if within_s <= 0:
            self._report_due.set()
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + within_s
        if self._report_timer is None or due < self._report_timer.when():
            self._cancel_timer()
            self._report_timer = loop.call_at(due, self._report_due.set)

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
                self._log_disconnect("the manager ended the connection")
            except ConfigError as error:
                self._log_disconnect(str(error))
            except TimeoutError:
                self._log_disconnect(f"the manager has accepted no report for {_WRITE_TIMEOUT_S:.0f} s")
            except grpc.aio.AioRpcError as error:
                self._log_disconnect(_explain(self._dialer, error))
                if error.code() in _REFUSED:
                    await asyncio.sleep(_REFUSED_BACKOFF_S * self._clock.jitter(0.25))
                    continue
            if self._has_orders:
                self._dialer.redial.succeeded()
            await asyncio.sleep(self._dialer.redial.next_delay_s())

    async def send_shutdown_notice(self, timeout_s: float = 2.0) -> None:
        """Send a last report, and wait up to ``timeout_s`` until the manager has applied it. Returns at once
        when no stream is open. Orders are not awaited: a manager with any report may place kernels here."""
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
        # Once per cause, not once per attempt.
        manager = self._dialer.target
        if cause != self._logged_causes.get(manager) and not self._shutting_down.is_set():
            log.warning("not connected to the manager, trying again", manager=manager, why=cause)
        self._logged_causes[manager] = cause

    async def _attach(self) -> None:
        async with self._dialer.channel(OPTIONS) as channel:
            stub = AgentLinkStub(channel)  # type: ignore[no-untyped-call]
            call = stub.Attach(metadata=self._dialer.metadata)
            # Deltas refer to what was sent on the same stream, so each stream starts afresh.
            self._reports, self._orders, self._orders_wanted = ReportSender(), OrdersReceiver(), False
            self._requested_pause_s = 0.0
            self._stream_number = next(self._stream_numbers)
            self._stub = stub
            sender = spawn("link.send", self._send_reports(call))
            sender.add_done_callback(lambda task: _end_with(task, call))
            requests: set[asyncio.Task[None]] = set()
            search: asyncio.Task[None] | None = None
            try:
                async for wire in call:
                    message = _decode(wire)
                    if isinstance(message, Orders | OrdersDelta):
                        self._requested_pause_s = min(wire.report_pause_ms / 1000, _MAX_REQUESTED_PAUSE_S)
                        self._reports.deltas = wire.report_deltas
                        self._receive_orders(message)
                    elif isinstance(message, Contact):
                        self._leases.renew(message.sent_at)
                    elif isinstance(message, FullReportRequest):
                        self._reports.force_full()
                        self._report_due.set()
                        if search is not None:
                            search.cancel()
                        if message.no_database:
                            search = spawn("link.search", self._leave_for_better(call))
                            requests.add(search)
                            search.add_done_callback(requests.discard)
                    elif message is not None:
                        task = self._serve(stub, message)
                        requests.add(task)
                        task.add_done_callback(requests.discard)
            except asyncio.CancelledError:
                raise_failure(sender)
                if not self._leaving or cancel_requested():
                    raise
            finally:
                self._leaving = False
                self._stub, self._is_open = None, False
                if self._has_orders:
                    self._on_disconnect()
                await cancel_and_wait(sender, *requests)
                call.cancel()
                if self._shutting_down.is_set():
                    self._notice_sent.set()

    async def _leave_for_better(self, call: Any) -> None:
        """The manager has lost its database. End this connection once another manager that has it answers:
        until then, nothing would be gained, and commands would be cut off."""
        found = False
        while not found:
            await asyncio.sleep(_SEARCH_EVERY_S / 2 * self._clock.jitter(0.5))
            found = await self._dialer.find_better(_CALL_TIMEOUT_S)
        self._leaving = True
        call.cancel()

    def _serve(
        self, stub: AgentLinkStub, request: ExecRequest | LogRequest | WorkspaceRequest
    ) -> asyncio.Task[None]:
        match request:
            case ExecRequest():
                work = serve_exec(stub, self._dialer.metadata, request, self._run_command)
                return spawn(f"link.exec.{request.request_id}", work)
            case WorkspaceRequest():
                return spawn(f"link.workspaces.{request.request_id}", self._send_workspaces(stub, request))
            case LogRequest():
                return spawn(f"link.logs.{request.request_id}", self._send_logs(stub, request))

    def _receive_orders(self, message: Orders | OrdersDelta) -> None:
        orders = self._orders.apply(message)
        self._orders_wanted = orders is None
        if orders is None:
            log.warning(
                "a delta of the orders does not match: asking for full orders", generation=message.generation
            )
            self._report_due.set()
            return
        if not self._apply_orders(orders):
            # The manager continues above the newest generation that a full report names.
            log.error(
                "refusing orders that are older than those applied before",
                generation=orders.generation,
                next_step="if this repeats, upgrade the manager: this release continues above what its "
                "agents have seen, as after the restore of a backup",
            )
            self._reports.force_full()
            self._report_due.set()
            return
        if not self._has_orders:
            self._has_orders = True
            self._logged_causes.clear()
            log.info("connected to the manager", manager=self._dialer.target, generation=orders.generation)
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
                shutting_down, started_at = self._shutting_down.is_set(), self._clock.monotonic()
                report = replace(
                    self._make_report(),
                    stream=self._stream_number,
                    orders_wanted=self._orders_wanted,
                    sent_at=self._leases.request(),
                )
                message = self._reports.next_message(report)
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    await call.write(message)
                if shutting_down:
                    await call.done_writing()
                    return
                sent_at = self._clock.monotonic()
                try:
                    async with asyncio.timeout(min(self._interval_s, self._leases.due_in())):
                        await self._report_due.wait()
                except TimeoutError:
                    continue
                pause = AFTER_REPORT.after(sent_at - started_at, self._requested_pause_s)
                await asyncio.sleep(max(0.0, sent_at + pause - self._clock.monotonic()))
        except _BROKEN:
            pass  # the reading side logs the cause

    async def _send_workspaces(self, stub: AgentLinkStub, request: WorkspaceRequest) -> None:
        answer = await self._handle_workspace_request(request)
        try:
            await stub.SendWorkspaces(answer, metadata=self._dialer.metadata, timeout=_CALL_TIMEOUT_S)
        except _BROKEN:
            pass  # the manager's request has timed out by now

    async def _send_logs(self, stub: AgentLinkStub, request: LogRequest) -> None:
        timeout_s = None if request.follow else _LOG_TIMEOUT_S
        call = stub.SendLogs(metadata=self._dialer.metadata, timeout=timeout_s)
        current = asyncio.current_task()
        assert current is not None
        # The manager ends the call when its reader has disconnected; a silent kernel may write nothing for
        # long.
        call.add_done_callback(lambda _: current.cancel())

        def chunk(data: bytes = b"", error: str = "") -> agent_pb2.LogChunk:
            return agent_pb2.LogChunk(request_id=request.request_id, data=data, error=error)

        try:
            await call.write(chunk())  # identifies the request, even if the log stays empty for long
            try:
                async with aclosing(self._open_log(request)) as pieces:
                    async for data in pieces:
                        for start in range(0, len(data), _CHUNK):
                            await call.write(chunk(data[start : start + _CHUNK]))
            except (MoorageError, OSError) as error:
                await call.write(chunk(error=str(error)))
            await call.done_writing()
            await call
        except _BROKEN:
            pass
        finally:
            call.cancel()


def _end_with(sender: asyncio.Task[None], call: Any) -> None:
    """Without reports a stream is of no use: end it if the sender fails, and connect again."""
    if not sender.cancelled() and sender.exception() is not None:
        call.cancel()


def _decode(wire: agent_pb2.ManagerMessage) -> codec.ManagerMessage | None:
    try:
        return codec.manager_message_from_wire(wire)
    except ValueError as error:
        log.error("ignoring an unknown message of the manager", error=str(error))
        return None


def _explain(dialer: Dialer, error: grpc.aio.AioRpcError) -> str:
    code, details = error.code(), error.details()
    if (explanation := dialer.explain(error)) is not None:
        return explanation
    if code in _REFUSED:
        return f"it refuses this agent, which retries every {_REFUSED_BACKOFF_S:.0f} s: {details}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"nothing answers at {dialer.target}: {details}"
    return f"{code.name}: {details}"
