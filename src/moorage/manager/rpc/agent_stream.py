"""Stream of one agent: turns its reports into updates for the store, taking into account the orders
that are on their way to the agent."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import NamedTuple

import grpc
import structlog
from google.protobuf.message import DecodeError

from moorage.common.link import codec
from moorage.common.link.messages import (
    Contact,
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
from moorage.common.model.addresses import dial_out_host, is_dial_out_host
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.rpc.report_validation import find_problem
from moorage.manager.store.kernels.orders import AgentOrders

log = structlog.get_logger("moorage.link")

# A full report is requested again only after this many seconds.
FULL_REQUEST_S = 5.0
# An agent that has acknowledged no orders of its stream for this many seconds, in this many deltas,
# refuses them. It sends deltas once it has received orders; full reports may have waited for a long
# time, for example when all agents connect simultaneously.
REFUSAL_S = 15.0
REFUSAL_DELTAS = 3


class StreamRefused(Exception):
    """Ends a stream with a gRPC status and a message for the agent's log."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


AgentRequest = LogRequest | ExecRequest | WorkspaceRequest | FullReportRequest | Contact


class LinkSettings(NamedTuple):
    """Settings that an agent receives with its orders: the longest pause between its reports, the
    managers that it may connect to, the proxies that accept its connections if it only dials out,
    the revoked proxies, and whether it must keep its usage."""

    heartbeat_s: float
    managers: tuple[str, ...]
    proxies: tuple[str, ...]
    revoked_proxies: tuple[str, ...]
    holds_usage: bool


class AgentStream:
    """Stream of one agent: what it has reported, and its orders, both sent and waiting to be sent.

    ``refused``: why the stream ends. ``is_established``: its first report has been applied.
    ``settings``: the last settings sent to it, or None if it has no orders yet. ``asked_at``: when
    it was asked to connect to another manager, in monotonic seconds. ``needs_given_up``: the next
    read of its orders also looks for kernels that were given up.
    """

    def __init__(
        self,
        first: agent_pb2.Report,
        caller: LinkCaller,
        decoded: Report | ReportDelta | None = None,
    ) -> None:
        """Raises ``StreamRefused`` if the first report is invalid or not a full one."""
        self._caller = caller
        self._reports = ReportReceiver()
        report = decoded or decode_report(first)
        if not isinstance(report, Report) or not self._reports.accept(first, report):
            raise StreamRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                "the first report of a stream must be a full report",
            )

        self.agent_id = report.info.agent_id
        self.incarnation = report.incarnation
        self.first = report
        self.address = report.info.address
        self.host = self.address
        self.reach_why = ""  # the reason why it dials out
        self.refused: StreamRefused | None = None
        self.wake = asyncio.Event()
        self.wake.set()
        self.is_established = False
        self.settings: LinkSettings | None = None
        self.asked_at = -inf
        self.needs_given_up = False
        self._requests: list[AgentRequest] = []

        # its orders are being read, and their kernels are not yet known
        self._is_reading_orders = False
        self._last = replace(report, kernels=())
        self._orders = OrdersSender()
        self._full_requested_at = -inf

        # The newest orders, the generation of the orders to be sent, and the changes since the
        # orders that were sent last.
        self.has_orders = False  # they have been read completely
        self._ordered: dict[KernelId, KernelSpec] = {}
        self._unsent: int | None = None
        self._changed: dict[KernelId, None] = {}

        # Ordered kernels, with the first generation that named them, until the agent acknowledges
        # that generation. The agent may start them at any moment.
        self._unacknowledged: dict[KernelId, int] = {}
        # Kernels that the agent should not have and does not have, for the next update.
        self._absent: set[KernelId] = set()

        # The first orders sent (generation, monotonic seconds), until the agent acknowledges any
        # orders.
        self._first_sent: tuple[int, float] | None = None
        self._deltas_since = 0
        self._has_acknowledged = False
        self.refuses_orders = False
        self._check(report)

    def bind(self, host: str, why: str = "") -> None:
        """Set the ``host`` at which the agent's kernels are reached, after it reported ``address``.
        ``why``: the reason why it dials out."""
        self.host = host
        self.reach_why = why
        self.wake.set()

    @property
    def dial_out_host(self) -> str:
        """The host at which its kernels are reached if it only dials out."""
        return dial_out_host(self.agent_id, self._caller.peer_id)

    @property
    def dials_out(self) -> bool:
        return is_dial_out_host(self.host)

    @property
    def ordered_kernels(self) -> int:
        return len(self._ordered)

    def send_request(self, request: AgentRequest) -> None:
        self._requests.append(request)
        self.wake.set()

    def take_requests(self) -> list[AgentRequest]:
        """Take the requests that have not yet been sent."""
        requests = self._requests
        self._requests = []
        return requests

    def establish(self) -> None:
        """Note that its first report has been applied."""
        self.is_established = True

    def refuse(self, refused: StreamRefused) -> None:
        """End the stream."""
        self.refused = refused
        self.wake.set()

    def note_settings(self, settings: LinkSettings) -> None:
        self.settings = settings

    def hand_over(self, manager: str, now: float) -> None:
        """Ask the agent to switch to the manager at this address. ``now``: monotonic seconds."""
        self.asked_at = now
        self.send_request(FullReportRequest(manager=manager))

    def look_for_given_up(self) -> None:
        self.needs_given_up = True

    def begin_reading_orders(self) -> None:
        self._is_reading_orders = True
        self.needs_given_up = False

    def end_reading_orders(self) -> None:
        self._is_reading_orders = False

    def request_full_report(self, now: float) -> None:
        """Request a full report unless one was requested a moment ago. ``now``: monotonic
        seconds."""
        if now - self._full_requested_at > FULL_REQUEST_S:
            self._full_requested_at = now
            self.send_request(FullReportRequest())

    def receive(
        self, wire: agent_pb2.Report, now: float, decoded: Report | ReportDelta | None = None
    ) -> Report | ReportDelta | None:
        """Return the decoded report, or None if the state has diverged and a full report was
        requested.

        Raises ``StreamRefused`` for an invalid report."""
        message = decoded or decode_report(wire)
        if not self._reports.accept(wire, message):
            log.warning("report state has diverged: requesting a full report", agent=self.agent_id)
            self.request_full_report(now)
            return None

        self._check(message)
        if message.orders_wanted:
            self._orders.force_full()

        return message

    def update(self, message: Report | ReportDelta, now: float) -> AgentUpdate:
        """The content of a report, taking into account the orders on their way to the agent.
        ``now``: monotonic seconds."""
        refused = self.refuses_orders
        self.refuses_orders = self._refuses(message, now)
        acknowledged = {
            k for k, first in self._unacknowledged.items() if first <= message.orders_generation
        }
        for kernel_id in acknowledged:
            del self._unacknowledged[kernel_id]

        candidates = self._absent | acknowledged
        self._absent = set()
        last = self._last
        whole = isinstance(message, Report)

        if isinstance(message, Report):
            self._last = replace(message, kernels=())
        else:
            self._last = replace(last, info=message.info or last.info, draining=message.draining)
            candidates |= message.removed

        if self._is_reading_orders:  # they may name some of these
            self._absent = candidates
            candidates = set()

        info = self._last.info
        kernels = message.kernels
        if self.host != self.address:
            info = replace(info, address=self.host)
            kernels = tuple(replace(k, host=self.host) if k.host else k for k in kernels)

        return AgentUpdate(
            info,
            self.incarnation,
            stream=self._last.stream,
            draining=self._last.draining,
            observed={k.kernel_id: k for k in kernels},
            absent=frozenset(k for k in candidates if self._is_absent(k)),
            unacknowledged=frozenset(self._unacknowledged),
            whole=whole,
            info_changed=whole
            or message.info is not None
            or (message.draining, self.refuses_orders) != (last.draining, refused),
            refuses_orders=self.refuses_orders,
            contact=message.sent_at > 0,
            reach_why=self.reach_why,
        )

    def _refuses(self, message: Report | ReportDelta, now: float) -> bool:
        """Whether the agent refuses the orders of this stream; if so, full orders follow."""
        if self._first_sent is not None and message.orders_generation >= self._first_sent[0]:
            self._first_sent = None
            self._has_acknowledged = True

        self._deltas_since += self._first_sent is not None and isinstance(message, ReportDelta)
        refuses = (
            self._first_sent is not None
            and now - self._first_sent[1] >= REFUSAL_S
            and self._deltas_since >= REFUSAL_DELTAS
        )
        if refuses:
            self._orders.force_full()

        return refuses

    def _check(self, message: Report | ReportDelta) -> None:
        """Check that a report is from the agent of this stream, and names no other host."""
        info = message.info
        address = self.address
        foreign = next(
            (k for k in message.kernels if k.host != address and (k.host or k.port)), None
        )
        if foreign is not None:
            raise StreamRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"kernel {foreign.kernel_id} is reported at {foreign.host[:80]!r}: an agent may "
                f"report only its own address, which is {address[:80]!r}",
            )

        if info is None:
            return

        if info.agent_id != self.agent_id:
            mismatch = (
                f"the stream of agent {self.agent_id!r} sent a report of agent {info.agent_id!r}"
            )
            raise StreamRefused(grpc.StatusCode.INVALID_ARGUMENT, mismatch)

        if info.address != address:
            mismatch = (
                f"the address changed from {address[:80]!r} to {info.address[:80]!r}: reconnect"
            )
            raise StreamRefused(grpc.StatusCode.INVALID_ARGUMENT, mismatch)

        if problem := self._caller.refusal_to_act_as(info.agent_id, info.resource_group):
            raise StreamRefused(grpc.StatusCode.PERMISSION_DENIED, problem)

    def _is_absent(self, kernel_id: KernelId) -> bool:
        """Whether the agent does not have the kernel, and no orders on their way to it name the
        kernel."""
        return not self._reports.reports(kernel_id) and kernel_id not in self._unacknowledged

    def offer(self, found: AgentOrders, generation: int) -> None:
        """Send these orders next if they differ from the last orders, or if the agent has yet to
        confirm that it does not have an unwanted kernel."""
        absent = {k for k in found.unwanted if k not in self._absent and self._is_absent(k)}
        self._absent |= absent
        added = {k.kernel_id: k for k in found.kernels if self._is_new(k)}

        if found.withdrawn is None:
            self.has_orders = True
            wanted = {spec.kernel_id for spec in found.kernels}
            withdrawn = [k for k in self._ordered if k not in wanted]
        else:
            withdrawn = [k for k in found.withdrawn if k in self._ordered]

        if not (added or withdrawn or absent or self._orders.needs_full):
            return

        for kernel_id in withdrawn:
            del self._ordered[kernel_id]

        self._unacknowledged |= dict.fromkeys(added.keys() - self._ordered.keys(), generation)
        self._ordered |= added
        self._changed |= dict.fromkeys((*withdrawn, *added))
        self._unsent = generation
        self.wake.set()

    def _is_new(self, spec: KernelSpec) -> bool:
        """Whether the kernel is newly ordered, or should reload or be suspended or resumed."""
        known = self._ordered.get(spec.kernel_id)
        return known is None or known.varied != spec.varied

    def next_message(self, now: float) -> Orders | OrdersDelta | None:
        """The message with the orders that were offered last, or None if it has been sent. ``now``:
        monotonic seconds."""
        generation = self._unsent
        self._unsent = None
        if generation is None:
            return None
        if self._first_sent is None and not self._has_acknowledged:
            self._first_sent = generation, now

        changed = self._changed
        self._changed = {}
        return self._orders.next_message(generation, self._ordered, changed)


def decode_report(wire: agent_pb2.Report) -> Report | ReportDelta:
    """Decode a report. Raises ``StreamRefused`` if it is invalid."""
    try:
        message = codec.report_from_wire(wire)
        problem = find_problem(message)
    except DecodeError as error:
        problem = str(error)
    if problem:
        raise StreamRefused(grpc.StatusCode.INVALID_ARGUMENT, f"invalid report: {problem}")
    return message
