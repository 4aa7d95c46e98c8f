"""A manager in the deterministic simulation: the real loops over the real store, run one at a time.

A manager can crash, lose its database connection or be paused at any statement.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import Contact, FullReportRequest, Orders, OrdersDelta
from moorage.common.link.pb import agent_pb2
from moorage.common.link.sync import OrdersReceiver, ReportSender
from moorage.common.model.errors import MoorageError, StoreUnavailable
from moorage.manager.identity.keys import IdempotencyKey, Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import (
    AgentMonitor,
    GarbageCollector,
    Leader,
    ReplicaController,
    Scheduler,
    SessionController,
)
from moorage.manager.loops.cron_controller import CronController
from moorage.manager.loops.lease_controller import LeaseController
from moorage.manager.loops.notification_controller import NotificationController
from moorage.manager.loops.notification_sender import NotificationSender
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.notifications.mail import Mailer
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.agent_stream import AgentStream, StreamRefused
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.secrets.keyring import Keyring
from moorage.manager.store import Store
from moorage.manager.store.pipelines.cron_jobs import CRON, CronJob, NewCronRun
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.cron_runs import run_name

from .database import CURRENT, EPOCH, ManagerCrashed, Operation, Postgres, SimulatedDatabase
from .node import Node

SUSPECT_AFTER_S = 12.0
LOST_GRACE_S = 30.0
_METRICS = ManagerMetrics()


class SkewedClock(ManualClock):
    """A manager's clocks in virtual time. The wall clock is off by ``skew`` seconds; the monotonic
    clock has leapt ``leaps`` seconds forward."""

    def __init__(self, time: Callable[[], float], rng: random.Random) -> None:
        super().__init__(EPOCH, rng.getrandbits(32))
        self._time = time
        self.skew = 0.0
        self.leaps = 0.0

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._time() + self.skew)

    def monotonic(self) -> float:
        return self._time() + self.leaps + 1000.0

    def new_id(self) -> str:
        self._now = self.now()
        return super().new_id()


@dataclass(eq=False)
class Stream:
    """An agent's connection to a manager, along with the messages in flight. ``open``: whether it
    is open, as the agent sees it. Messages of a broken stream may still arrive. Each end has its
    own synchronization state, as in production.
    """

    node: Node
    manager: ManagerProcess
    open: bool = True
    agent_stream: AgentStream | None = None
    up: deque[agent_pb2.Report] = field(default_factory=deque)
    down: deque[Orders | OrdersDelta | FullReportRequest | Contact] = field(default_factory=deque)
    reports: ReportSender = field(default_factory=ReportSender)
    orders: OrdersReceiver = field(default_factory=OrdersReceiver)
    orders_wanted: bool = False
    number: int = 0
    delayed_until: float = 0.0  # reports in flight do not arrive earlier
    served: bool = False  # its first report was applied, so orders may be sent
    busy: bool = False  # a report is being applied; a stream applies only one at a time

    def send_report(self) -> None:
        """The agent sends its state."""
        report = replace(
            self.node.report(), orders_wanted=self.orders_wanted, stream=self.number,
            sent_at=self.node.leases.request(),
        )  # fmt: skip
        self.up.append(self.reports.next_message(report))

    def receive(self, message: Orders | OrdersDelta | FullReportRequest | Contact) -> None:
        """The agent receives a message from the manager."""
        if isinstance(message, Contact):
            self.node.renew_leases(message.sent_at)
            return
        if isinstance(message, FullReportRequest):
            self.reports.force_full()
            return

        self.reports.allow_deltas(True)
        self.orders_wanted = not (self.orders.accept(message) and self.node.take(message))
        if self.orders_wanted:
            self.orders.reject()
        if self.node.leases.due_in() <= 0:
            self.send_report()


class ManagerProcess:
    """One manager process, from its start to its crash."""

    def __init__(
        self,
        name: str,
        postgres: Postgres,
        rng: random.Random,
        *,
        keep_unknown: bool = True,
        keys: Path | None = None,
    ) -> None:
        self.name = name
        self.database = SimulatedDatabase(postgres)
        self.clock = SkewedClock(lambda: postgres.time, rng)
        self.store = Store(
            self.database.dsn, self.clock, lost_grace_s=LOST_GRACE_S, keep_unknown_kernels=keep_unknown,
            database=self.database, keyring=Keyring(keys, self.clock),
        )  # fmt: skip
        self.leader = Leader(self.store, self.clock)
        self.deadlines = self.leader.deadlines
        self.terminator = SessionTerminator(self.store, LOST_GRACE_S)
        self.scheduler = Scheduler(
            self.store, self.leader, self.terminator, _METRICS, clock=self.clock
        )
        self.sessions = SessionController(self.store, self.leader, self.clock, LOST_GRACE_S)
        self.replicas = ReplicaController(self.store, self.leader, self.terminator, self.clock)
        self.collector = GarbageCollector(self.store, self.leader, _METRICS, self.clock)
        self.monitor = AgentMonitor(
            self.store,
            self.leader,
            _METRICS,
            self.clock,
            suspect_after_s=SUSPECT_AFTER_S,
            lost_grace_s=LOST_GRACE_S,
        )
        self.leases = LeaseController(self.store, self.leader, self.clock)
        self.links = AgentLinks(self.store, _METRICS, self.clock)
        self.cron = CronController(
            self.store, self.leader, self.terminator, self.clock, start=self.start_cron_run
        )
        self.events = NotificationController(self.store, self.leader, self.clock)
        self.sender: NotificationSender | None = None
        self.paused: list[Operation] = []

    def automate(self, receiver: Any) -> None:
        """Run cron jobs, and send notifications to this receiver."""
        self.sender = NotificationSender(self.store, self.clock, receiver, cast(Mailer, None))

    async def run_cron(self) -> None:
        await self.cron.run_once()

    async def assign_events(self) -> None:
        await self.events.run_once()

    async def send_notifications(self) -> None:
        if self.sender is not None:
            await self.sender.run_once()
            await self.sender.finished()

    async def start_cron_run(self, job: CronJob, run: NewCronRun, *, by_hand: bool = False) -> None:
        """What ``CronSubmitter`` does, for a session of somebody who may do everything."""
        assert job.spec.session is not None
        name = run_name(job.name, run.scheduled_at, manual=by_hand)
        spec = job.spec.session.model_copy(update={"name": name})
        scope = Scope.system(f"cron:{job.name}", Owner(job.owner, job.project))
        await self.store.sessions.create_once(
            scope, spec, idempotency_key=IdempotencyKey(CRON, run.id)
        )

    @property
    def crashed(self) -> bool:
        return self.database.crashed

    async def execute(self, operation: Operation, work: Coroutine[Any, Any, Any]) -> Any:
        """Run until the operation is done, paused or crashed. Returns its result, or None if the
        caller never receives it."""
        token = CURRENT.set(operation)
        operation.task = asyncio.get_running_loop().create_task(work, name=operation.label)
        CURRENT.reset(token)
        return await self._wait(operation)

    async def _wait(self, operation: Operation) -> Any:
        task = operation.task
        assert task is not None
        paused = asyncio.get_running_loop().create_task(operation.paused.wait())
        await asyncio.wait({task, paused}, return_when=asyncio.FIRST_COMPLETED)
        paused.cancel()
        if not task.done():
            self.paused.append(operation)
            return None

        try:
            return task.result()
        except (ManagerCrashed, MoorageError):
            return None
        except asyncio.CancelledError:
            # A batch writer that crashed with the manager cancels its callers.
            if not self.crashed:
                raise
            return None

    async def resume(self, operation: Operation) -> None:
        """A paused operation continues."""
        self.paused.remove(operation)
        operation.fault = None
        operation.paused.clear()
        operation.resume.set()
        await self._wait(operation)

    async def crash(self) -> None:
        self.database.crashed = True
        while self.paused:
            await self.resume(self.paused[0])

    # The link, which does what ``rpc/agent_link.py`` does between gRPC and its own state.

    async def apply_report(self, stream: Stream, wire: agent_pb2.Report) -> None:
        stream.busy = True
        try:
            if stream.agent_stream is None:
                stream.agent_stream = AgentStream(wire, LinkCaller())
                await self.links.apply_report(stream.agent_stream, stream.agent_stream.first)
                stream.served = True
                return

            message = stream.agent_stream.receive(wire, self.clock.monotonic())
            if message is not None and not await self.links.apply_report(
                stream.agent_stream, message
            ):
                self.disconnect(stream)
        except (StoreUnavailable, StreamRefused):  # even if the first report was lost
            self.disconnect(stream)
        finally:
            stream.busy = False

    def send_orders(self, stream: Stream) -> None:
        """Send the items that were offered to the stream."""
        agent_stream = stream.agent_stream
        if (
            agent_stream is None
            or not stream.served
            or self.links.get(agent_stream.agent_id) is not agent_stream
        ):
            return

        requests = agent_stream.take_requests()
        if (message := agent_stream.next_message(self.clock.monotonic())) is not None:
            stream.down.append(message)

        stream.down.extend(r for r in requests if isinstance(r, FullReportRequest | Contact))

    def disconnect(self, stream: Stream) -> None:
        stream.open = False
        stream.up.clear()
        if stream.agent_stream is not None:
            self.links.close_stream(stream.agent_stream)
