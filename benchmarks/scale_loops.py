"""Loops of a manager in the scale benchmark: all iterations of an idle minute, and those after one
change.

The loops run in this process, by a clock that skips the time between two iterations. An idle minute
therefore takes as long as the work in it, including the work that is done once per minute.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from heapq import heapify, heapreplace

from moorage.common.aio.clock import SystemClock
from moorage.common.aio.loop import Loop
from moorage.common.model.ids import AgentId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.manager.identity.scope import Scope
from moorage.manager.loops import (
    AgentMonitor,
    DecisionRecorder,
    DrainController,
    GarbageCollector,
    Leader,
    ReplicaController,
    Scheduler,
    SessionController,
    StartCalibrator,
    UsageWriter,
    session_controller,
)
from moorage.manager.loops.autoscaler import Autoscaler
from moorage.manager.loops.garbage_collector import Retention
from moorage.manager.loops.lease_controller import LeaseController
from moorage.manager.loops.load_writer import LoadWriter
from moorage.manager.loops.presence import Presence
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.rpc import AgentLinks, RouteFeed
from moorage.manager.store import Store
from moorage.manager.termination import SessionTerminator
from scale_meter import Case, Meter, Steps
from scale_worlds import World, fill

IDLE_S = 60.0
DAY_S = 86_400.0
CHANGES = 3  # changes per round
NEVER_S = 1e6


class SkippingClock(SystemClock):
    """Its monotonic time skips unused intervals. It is never slower than the database's."""

    def __init__(self) -> None:
        self._ahead_s = -super().monotonic()

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_s

    def skip_to(self, at: float) -> None:
        self._ahead_s += max(0.0, at - self.monotonic())


class Loops:
    """All loops of a leader on one database."""

    def __init__(self, dsn: str, world: World, *, vacuum: bool = True) -> None:
        self.dsn = dsn
        self._world = world
        self._vacuum = vacuum
        self.clock = SkippingClock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Loops:
        await fill(self.dsn, self._world, vacuum=self._vacuum)
        clock = self.clock
        metrics = ManagerMetrics()
        grace_s = 90.0
        store = await self._stack.enter_async_context(Store(self.dsn, clock))
        self.store = store
        leader = Leader(store, clock)
        self.leader = leader
        self.terminator = SessionTerminator(store, grace_s)
        recorder = DecisionRecorder(store, metrics, clock)
        self.feed = RouteFeed(store, clock)
        presence = Presence(store, clock, lambda: "127.0.0.1:1")
        self.scheduler = Scheduler(
            store, leader, self.terminator, metrics, clock=clock, recorder=recorder
        )
        self.sessions = SessionController(store, leader, clock, grace_s)
        self.replicas = ReplicaController(store, leader, self.terminator, clock)
        monitor = AgentMonitor(
            store, leader, metrics, clock, suspect_after_s=NEVER_S, lost_grace_s=NEVER_S
        )
        collector = GarbageCollector(
            store,
            leader,
            metrics,
            clock,
            kept=Retention(decisions_s=7 * DAY_S, decisions_bytes=1 << 28),
        )
        self._loops = [
            leader.loop,
            leader.deadlines.loop,
            presence.loop,
            self.scheduler.loop,
            recorder.loop,
            self.sessions.loop,
            self.replicas.loop,
            monitor.loop,
            collector.loop,
            DrainController(store, leader, clock, grace_s).loop,
            StartCalibrator(store, leader, metrics, clock, kept_s=90 * DAY_S).loop,
            LeaseController(store, leader, clock).loop,
            Autoscaler(store, leader, metrics, clock).loop,
            LoadWriter(store, clock).loop,
            UsageWriter(store, metrics, clock).loop,
            AgentLinks(store, metrics, clock).loop,
            *self.feed.loops,
        ]
        await self._end_election()

        return self

    async def _end_election(self) -> None:
        """Examine everything once, as a new leader does immediately. The lease may have expired
        while other sizes were measured, and the work that follows is not part of idling."""
        world = self._world
        term = self.leader.term
        await self.leader.run_once()
        if self.leader.term == term:
            return

        for loop in self._loops:
            await loop.tick()

        live = world.running + world.endpoints * world.replicas + world.pending
        for _ in range(live // session_controller.SWEPT + 2):
            await self.leader.run_once()
            await self.sessions.loop.tick()

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def round(self, meter: Meter) -> None:
        await self._end_election()
        await self.idle(meter, IDLE_S)

    async def idle(self, meter: Steps, seconds: float) -> None:
        """This many idle seconds, with each loop at its interval."""
        start = self.clock.monotonic()
        due: list[tuple[float, int, Loop]] = [
            (start, n, loop) for n, loop in enumerate(self._loops)
        ]
        heapify(due)

        while due[0][0] < start + seconds:
            at, number, loop = due[0]
            self.clock.skip_to(at)
            with meter.step(f"{loop.name}: idle", of_s=seconds):
                await loop.tick()

            heapreplace(due, (at + loop.interval_s, number, loop))

    async def change(
        self, meter: Meter, step: str, change: Callable[[], Awaitable[object]], *loops: Loop
    ) -> None:
        """Change something, then run the loops that it concerns once."""
        self.clock.skip_to(self.clock.monotonic() + 0.1)
        await self.leader.run_once()
        await change()
        with meter.step(step):
            for loop in loops:
                await loop.tick()


class Sessions(Loops):
    """By the number of running sessions."""

    def __init__(self, dsn: str, size: int) -> None:
        super().__init__(dsn, World(running=size))
        self._next = 0

    async def round(self, meter: Meter) -> None:
        await super().round(meter)
        for _ in range(CHANGES):
            await self.change(
                meter, "sessions: a kernel ends", self._end_kernel, self.sessions.loop
            )

    async def _end_kernel(self) -> None:
        self._next += 1
        rows = await self.store.database.fetch(
            "WITH freed AS (UPDATE allocations SET released_at = now() "
            "WHERE kernel_id = scale_id('kr', $1::int) "
            "RETURNING *), counted AS (UPDATE agent_slots c SET used = c.used - f.amount FROM freed f "
            "WHERE (c.agent_id, c.slot) = (f.agent_id, f.slot)) "
            "UPDATE kernels SET status = 'TERMINATED', observed = 'EXITED', reason = 'exit-zero', "
            "status_since = now() WHERE id = scale_id('kr', $1::int) RETURNING session_id",
            self._next,
        )
        self.store.notifier.notify_kernels([SessionId(rows[0]["session_id"])])


class Endpoints(Loops):
    """By the number of endpoints with 20 ready replicas each, ten on an agent, all of them
    autoscaled."""

    def __init__(self, dsn: str, size: int) -> None:
        super().__init__(dsn, World(agents=2 * size, endpoints=size))
        self._next = 0

    async def round(self, meter: Meter) -> None:
        await super().round(meter)
        for _ in range(CHANGES):
            await self.change(
                meter, "feed: a replica stops", self._stop_replica, self.feed.routes.loop
            )
            await self.change(
                meter, "replicas: a replica stops", self._stop_replica, self.replicas.loop
            )
            await self.change(
                meter, "scheduler: a replica starts", self._notice, self.scheduler.loop
            )

    async def _notice(self) -> None:
        """Does nothing, because the replica controller has created the replica."""

    async def _stop_replica(self) -> None:
        self._next += 1
        rows = await self.store.database.fetch("SELECT scale_id('s', $1::int) AS id", self._next)
        scope = Scope.system("scale")
        await self.terminator.stop(scope, SessionId(rows[0]["id"]), reason=Reason.USER_REQUESTED)


class Waiting(Loops):
    """By the number of endpoints, while a few replicas wait for capacity."""

    def __init__(self, dsn: str, size: int) -> None:
        super().__init__(dsn, World(agents=2 * size, endpoints=size, full=True, waiting=5))

    async def round(self, meter: Meter) -> None:
        await super().round(meter)
        for _ in range(CHANGES):
            await self.change(
                meter, "scheduler: too little is freed", self._free, self.scheduler.loop
            )

    async def _free(self) -> None:
        self.store.notifier.notify_capacity([AgentId("node-1")])


class Pending(Loops):
    """By the number of waiting sessions, on agents without free capacity. A few of the sessions
    name their agent."""

    def __init__(self, dsn: str, size: int) -> None:
        super().__init__(dsn, World(pending=size, running=2_000, full=True, named=3))

    async def round(self, meter: Meter) -> None:
        await super().round(meter)
        for _ in range(CHANGES):
            await self.change(
                meter, "scheduler: one more session", self._create, self.scheduler.loop
            )
            await self.change(
                meter, "scheduler: too little is freed", self._free, self.scheduler.loop
            )

    async def _create(self) -> None:
        spec = SessionSpec(name=f"new-{self.clock.new_id()}", command=["true"])
        await self.store.sessions.create(Scope.system("scale"), spec)

    async def _free(self) -> None:
        rows = await self.store.database.fetch("SELECT id FROM agents ORDER BY random() LIMIT 1")
        self.store.notifier.notify_capacity([rows[0]["id"]])


class Quotas(Loops):
    """By the number of running sessions, while quotas hold back others."""

    def __init__(self, dsn: str, size: int) -> None:
        super().__init__(dsn, World(pending=100, running=size, quotas=True))

    async def round(self, meter: Meter) -> None:
        await super().round(meter)
        for _ in range(CHANGES):
            await self.change(
                meter, "scheduler: too little is freed", self._free, self.scheduler.loop
            )

    async def _free(self) -> None:
        self.store.notifier.notify_capacity([AgentId("node-1")])


class Agents(Loops):
    """By the number of agents, while a few sessions wait for capacity."""

    def __init__(self, dsn: str, size: int) -> None:
        super().__init__(dsn, World(agents=size, running=10_000, pending=100, full=True))

    async def round(self, meter: Meter) -> None:
        await super().round(meter)
        for _ in range(CHANGES):
            await self.change(
                meter, "scheduler: too little is freed", self._free, self.scheduler.loop
            )

    async def _free(self) -> None:
        self.store.notifier.notify_capacity([AgentId("node-1")])


def _unit(step: str) -> str:
    return "per second" if step.endswith(": idle") else "each"


CASES = {
    "sessions": Case(Sessions, (3_000, 30_000, 300_000), (5_000, 50_000), _unit, has_leader=True),
    "endpoints": Case(Endpoints, (10, 100, 1_000), (30, 300), _unit, has_leader=True),
    "waiting": Case(Waiting, (10, 100, 1_000), (30, 300), _unit),
    "pending": Case(Pending, (500, 5_000, 50_000), (1_000, 10_000), _unit, has_leader=True),
    "quotas": Case(Quotas, (3_000, 30_000, 300_000), (5_000, 50_000), _unit),
    "agents": Case(Agents, (100, 1_000, 10_000), (200, 2_000), _unit),
}
