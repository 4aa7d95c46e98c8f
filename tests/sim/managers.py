"""A manager in the world: the real loops over the real store, called by hand, dead between any statements."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from moorage.common.aio.clock import ManualClock
from moorage.common.link.messages import Orders, OrdersDelta, Report, ReportDelta, WholeReportWanted
from moorage.common.link.sync import OrdersReceiver, ReportSender
from moorage.common.model.errors import MoorageError, StoreUnavailable
from moorage.manager.loops import GarbageCollector, Leader, ReplicaController, Scheduler, SessionController
from moorage.manager.metrics import Metrics
from moorage.manager.rpc.agent_link import AgentLinks, AgentStream, _Refused
from moorage.manager.rpc.authentication import Caller
from moorage.manager.store import Store

from .database import CURRENT, EPOCH, Died, Operation, Postgres, WorldDatabase
from .node import Node

SUSPECT_AFTER_S, LOST_GRACE_S = 12.0, 30.0
_METRICS = Metrics()


class SkewedClock(ManualClock):
    """The world's time, ``skew`` seconds off."""

    def __init__(self, time: Callable[[], float], rng: random.Random) -> None:
        super().__init__(EPOCH, rng.getrandbits(32))
        self._time, self.skew = time, 0.0

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._time() + self.skew)

    def monotonic(self) -> float:
        return self._time() + 1000.0

    def new_id(self) -> str:
        self._now = self.now()
        return super().new_id()


@dataclass(eq=False)
class Stream:
    """One connection of an agent to a manager, with what is under way in it. ``open``: as the agent sees it.
    Each end keeps its own books, as shipped; what is written to a broken stream may still arrive."""

    node: Node
    manager: ManagerLife
    open: bool = True
    attached: AgentStream | None = None
    up: deque[Report | ReportDelta] = field(default_factory=deque)
    down: deque[Orders | OrdersDelta | WholeReportWanted] = field(default_factory=deque)
    reports: ReportSender = field(default_factory=ReportSender)
    orders: OrdersReceiver = field(default_factory=OrdersReceiver)
    orders_wanted: bool = False
    number: int = 0
    held_until: float = 0.0  # what is on its way up is held up for so long
    served: bool = False  # its first report was taken in: it may be written to
    busy: bool = False  # its reader is at work: a stream's reports are taken in one by one

    def tell(self) -> None:
        """The agent sends its report."""
        report = replace(self.node.report(), orders_wanted=self.orders_wanted, stream=self.number)
        self.up.append(self.reports.next_message(report))

    def obey(self, message: Orders | OrdersDelta | WholeReportWanted) -> None:
        """The agent hears the manager."""
        if isinstance(message, WholeReportWanted):
            self.reports.force_full()
            return
        whole = self.orders.apply(message)
        self.orders_wanted = whole is None
        if whole is not None:
            self.node.take(whole)


class ManagerLife:
    """A manager from its start to its death."""

    def __init__(self, name: str, postgres: Postgres, rng: random.Random) -> None:
        self.name = name
        self.database = WorldDatabase(postgres)
        self.clock = SkewedClock(lambda: postgres.time, rng)
        self.store = Store(self.database.dsn, self.clock, lost_grace_s=LOST_GRACE_S, database=self.database)
        self.leader = Leader(self.store, self.clock)
        self.scheduler = Scheduler(self.store, self.leader, _METRICS, self.clock)
        self.sessions = SessionController(self.store, self.clock, LOST_GRACE_S)
        self.replicas = ReplicaController(self.store, self.leader, self.clock)
        self.collector = GarbageCollector(
            self.store, self.leader, _METRICS, self.clock, SUSPECT_AFTER_S, LOST_GRACE_S
        )
        self.links = AgentLinks(self.store, _METRICS, self.clock)
        self.parked: list[Operation] = []

    @property
    def dead(self) -> bool:
        return self.database.dead

    async def do(self, operation: Operation, work: Coroutine[Any, Any, Any]) -> Any:
        """Run until it is done, parked or dead. The answer, or None: whoever asked does not know."""
        token = CURRENT.set(operation)
        operation.task = asyncio.get_running_loop().create_task(work, name=operation.label)
        CURRENT.reset(token)
        return await self.follow(operation)

    async def follow(self, operation: Operation) -> Any:
        task = operation.task
        assert task is not None
        parked = asyncio.get_running_loop().create_task(operation.parked.wait())
        await asyncio.wait({task, parked}, return_when=asyncio.FIRST_COMPLETED)
        parked.cancel()
        if not task.done():
            self.parked.append(operation)
            return None
        try:
            return task.result()
        except (Died, MoorageError):
            return None
        except asyncio.CancelledError:
            # A writer that died with the manager cancels those who wait for it.
            if not self.dead:
                raise
            return None

    async def resume(self, operation: Operation) -> None:
        """What was stopped goes on with what it knew then."""
        self.parked.remove(operation)
        operation.fault = None
        operation.parked.clear()
        operation.resume.set()
        await self.follow(operation)

    async def die(self) -> None:
        self.database.dead = True
        while self.parked:
            await self.resume(self.parked[0])

    # -- the link: what rpc/link.py does around its bookkeeping --

    async def hear(self, stream: Stream, message: Report | ReportDelta) -> None:
        stream.busy = True
        try:
            if stream.attached is None:
                await self._attach(stream, message)
            elif (report := stream.attached.take(message)) is not None:
                if not await self.links._observe(stream.attached, report):
                    self.hang_up(stream)
                elif report.orders_wanted:
                    self.links._heard([stream.attached.agent_id])
        except (StoreUnavailable, _Refused):
            self.hang_up(stream)
        finally:
            stream.busy = False

    async def _attach(self, stream: Stream, first: Report | ReportDelta) -> None:
        if not isinstance(first, Report):
            return self.hang_up(stream)  # its beginning was lost
        attached = stream.attached = self.links._admit(first, Caller())
        attached.take(first)
        await self.links._observe(attached, first)
        self.links._heard([attached.agent_id])
        stream.served = True
        return None

    def write(self, stream: Stream) -> None:
        """What was offered goes out."""
        attached = stream.attached
        if (
            attached is None
            or not stream.served
            or self.links._attached.get(attached.agent_id) is not attached
        ):
            return
        requests, attached.requests = attached.requests, []
        stream.down.extend(r for r in requests if isinstance(r, WholeReportWanted))
        if (message := attached.sending()) is not None:
            stream.down.append(message)

    def hang_up(self, stream: Stream) -> None:
        stream.open = False
        stream.up.clear()
        if stream.attached is not None:
            self.links._leave(stream.attached)
