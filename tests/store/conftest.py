"""Fixtures and steps for store tests: a migrated database per test, agents, and one-shot control
loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import pytest_asyncio

from moorage.common.aio.clock import Clock
from moorage.common.link.messages import AgentInfo, Observation, Report, RuntimeState, SlotOffer
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.kernel import DoubtfulJob, SiteNodes
from moorage.common.model.reasons import Reason
from moorage.common.model.status import AgentStatus, ObservedState
from moorage.common.views.resources import SessionView
from moorage.manager.identity.scope import Scope
from moorage.manager.lifecycle import reconcile_session
from moorage.manager.lifecycle.kernels import AgentUpdate
from moorage.manager.lifecycle.silence import Mark
from moorage.manager.loops import leader
from moorage.manager.scheduling import plan
from moorage.manager.store import Store, Topic
from moorage.manager.store.database.connections import Database, DedicatedConnection
from moorage.manager.termination import SessionTerminator
from tests.clocks import StoreClock
from tests.databases import new_database

GIB = 1024**3
LOST_GRACE_S = 120.0


@pytest.fixture(autouse=True)
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader's writes are refused once its lease is over by Postgres's clock, which on a busy
    machine can happen between two statements of a test."""
    monkeypatch.setattr(leader, "LEASE_S", 120.0)


@pytest.fixture(autouse=True)
def few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store has two connections instead of thirty, because a Postgres backend takes 4 ms of CPU
    time to start, and parses and plans each statement again."""
    open_connection = Database.dedicated_connection
    opened: dict[tuple[Database, bool], DedicatedConnection] = {}

    def shared(database: Database, *, durable: bool = True) -> DedicatedConnection:
        if (database, durable) not in opened:
            opened[database, durable] = open_connection(database, durable=durable)
        return opened[database, durable]

    monkeypatch.setattr(Database, "dedicated_connection", shared)


@pytest.fixture
def clock() -> StoreClock:
    """The clock of the fixture ``store``."""
    return StoreClock()


@asynccontextmanager
async def open_store(dsn: str, clock: Clock | None = None, **options: Any) -> AsyncIterator[Store]:
    """A store that receives other managers' notifications. ``options``: the options of ``Store``.

    When it first connects for notifications, this is treated as a notification of everything. A
    test that continued before then would sometimes find its caches invalidated.
    """
    made = Store(dsn, clock or StoreClock(), **options)
    listening = asyncio.Event()
    made.notifier.on(Topic.PEERS, listening.set)

    async with made:
        async with asyncio.timeout(30):
            await listening.wait()
        yield made


@pytest_asyncio.fixture
async def store(migrated_database: str, clock: StoreClock) -> AsyncIterator[Store]:
    async with open_store(migrated_database, clock) as made:
        yield made


@pytest_asyncio.fixture
async def owners(store: Store) -> None:
    """The users and projects for which tests set quotas, budgets, secrets and templates."""
    await store.database.fetch(
        "INSERT INTO users (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING",
        ["ann", "bob", "mate"],
    )
    await store.database.fetch(
        "INSERT INTO projects (name) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING",
        ["vision", "speech", "other", "odd"],
    )


@pytest_asyncio.fixture
async def target(postgres_dsn: str) -> AsyncIterator[str]:
    """A second, empty database on the same server."""
    async with new_database(postgres_dsn) as dsn:
        yield dsn


@dataclass
class FakeAgent:
    """Reports as an agent: ``see`` sets the observed state of a kernel, and ``report`` sends the
    full state or the changes since the last report. ``confirms``: whether it has received the
    current orders."""

    store: Store
    name: str = "node-1"
    gpus: int = 2
    gpu_model: str = "H100"
    generation: int = 0
    seen: dict[KernelId, Observation] = field(default_factory=dict)
    confirms: bool = False
    sent: tuple[Store, Report] | None = None
    incarnation: str = "incarnation-1"
    stream: int = 0
    identity: str = ""
    arch: str = "x86_64"
    group: str = "default"
    labels: dict[str, str] = field(default_factory=dict)
    runtimes: tuple[str, ...] = ("process",)
    runtime_states: tuple[RuntimeState, ...] = ()
    lease_runtimes: tuple[str, ...] = ()
    suspend_runtimes: tuple[str, ...] = ()
    doubtful_jobs: tuple[DoubtfulJob, ...] = ()
    site_nodes: tuple[SiteNodes, ...] = ()
    not_ready: str = ""

    def full_report(self) -> Report:
        gpus = tuple(
            SlotOffer(
                "cuda.device",
                1000,
                device_id=DeviceId(f"GPU-{self.name}-{i}"),
                model=self.gpu_model,
                memory_bytes=80 * GIB,
            )
            for i in range(self.gpus)
        )
        offers = (SlotOffer("cpu", 8000), SlotOffer("mem", 64 * GIB), *gpus)
        info = AgentInfo(
            AgentId(self.name), self.group, "127.0.0.1", "0.1.0", self.arch, self.runtimes,
            ("custom", "llamacpp", "vllm"), offers, self.labels, self.identity,
            runtime_states=self.runtime_states, lease_runtimes=self.lease_runtimes,
            doubtful_jobs=self.doubtful_jobs, site_nodes=self.site_nodes,
            not_ready=self.not_ready, suspend_runtimes=self.suspend_runtimes,
        )  # fmt: skip
        kernels = tuple(self.seen.values())

        return Report(info, self.incarnation, self.generation, kernels, stream=self.stream)

    def reconnect(self, store: Store) -> None:
        """Continue through a new stream, perhaps to another manager."""
        self.store = store
        self.stream = self.stream + 1
        self.confirms = False

    def see(self, kernel_id: str, state: ObservedState, **more: object) -> None:
        old = self.seen.get(KernelId(kernel_id))
        base = old or Observation(KernelId(kernel_id), session_id="", state=state)  # type: ignore[arg-type]
        self.seen[KernelId(kernel_id)] = replace(base, state=state, **more)  # type: ignore[arg-type]

    async def report(self) -> int:
        agent_id = AgentId(self.name)
        report = self.full_report()
        absent = set[KernelId]()
        if self.confirms:
            orders = await self.store.orders.of_many([agent_id], [agent_id])
            absent = {k for k in orders[agent_id].unwanted if k not in self.seen}

        update = AgentUpdate.of(report, absent)
        before = self.sent
        self.sent = (self.store, report)
        if (
            before is None
            or before[0] is not self.store
            or self.store.reports.needs_full_report(agent_id)
        ):
            return await self.store.reports.apply(update)

        last = before[1]
        sent = {k.kernel_id: k for k in before[1].kernels}
        if (last.stream, last.incarnation) == (report.stream, report.incarnation):
            update = replace(
                update,
                whole=False,
                observed={k: seen for k, seen in self.seen.items() if sent.get(k) != seen},
                absent=frozenset(absent | (sent.keys() - self.seen.keys())),
                info_changed=report.info != last.info,
            )

        return await self.store.reports.apply(update)


async def schedule(store: Store) -> int:
    """Run one pass over all groups, as the leader."""
    term = await store.leases.acquire("test", 60)
    assert term is not None
    placed = 0
    for group, policy in await store.groups.with_pending():
        snapshot = await store.scheduling.snapshot(group, policy, with_running=True)
        made = plan(snapshot, policy)
        placed += await store.scheduling.place(made.places, term)
        await store.scheduling.record_holds(snapshot, made.holds, policy.num_retries_to_skip)

    return placed


async def reconcile_all(store: Store) -> None:
    """Reconcile until no session changes."""
    for _ in range(10):
        facts, now = await store.lifecycle.unsettled()
        moves = [m for f in facts if (m := reconcile_session(f, now, 120)) is not None]
        if not moves:
            return
        await store.lifecycle.apply_all(moves)
    raise AssertionError("the sessions do not reconcile_all")


async def mark_silent(
    store: Store, *names: str, seconds: float = 3600, lost: bool = True
) -> list[str]:
    """Let the leader find that these agents (by default all of them) have been silent for this
    long: they become SUSPECT, and with ``lost`` LOST. Returns the agents that were marked last."""
    await store.database.fetch("DELETE FROM leases")
    term = await store.leases.acquire("test", 60)
    marked = list[str]()
    await store.database.fetch(
        "UPDATE agents SET last_seen = now() - make_interval(secs => $2) "
        "WHERE $1::text[] = '{}' OR id = ANY ($1)",
        list(names),
        seconds,
    )

    for new in (AgentStatus.SUSPECT, AgentStatus.LOST)[: 2 if lost else 1]:
        silent = [
            one for one in await store.agents.contacts(0.0) if not names or one.agent_id in names
        ]
        marks = [Mark(one.agent_id, one.last_seen, new, LOST_GRACE_S) for one in silent]
        marked = [agent_id for agent_id, _ in await store.agents.mark_silent(marks, term or 0)]

    return marked


async def stop(store: Store, ref: str, actor: str = "test", **options: Any) -> SessionView:
    return await SessionTerminator(store, LOST_GRACE_S).stop(Scope.system(actor), ref, **options)


RUNNING = {"host": "127.0.0.1", "port": 21000}
FAILED = {"exit_code": 1, "reason": Reason.EXIT_NONZERO, "log_tail": "boom"}
