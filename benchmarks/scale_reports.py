"""Reports in the scale benchmark: the cost of a report with one change, by the number of the
agent's kernels.

The manager's end of the agent link, from the message to the commit in Postgres; the agent's end is
measured in ``scale_agent``.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import AgentInfo, Observation, Report, ReportDelta, SlotOffer
from moorage.common.link.sync import ReportSender
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.status import ObservedState
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.agent_stream import AgentStream
from moorage.manager.rpc.authentication import LinkCaller
from moorage.manager.store import Store
from scale_meter import Case, Meter

REPORTS = 20  # per round

# Kernels that pull their image. Each progress text is a change that is written.
INSERT = (
    "INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, created_by, owner) "
    "SELECT md5('s' || $1 || n)::uuid, $1 || n, 'batch', 'PREPARING', 'default', 10, "
    "'{\"command\": [\"x\"]}', '{}', 'scale', 'scale' FROM generate_series(1, $2) n",
    "INSERT INTO kernels (id, session_id, attempt, status, agent_id, secret) "
    "SELECT md5('k' || $1 || n)::uuid, md5('s' || $1 || n)::uuid, 1, 'PREPARING', $1, 's' "
    "FROM generate_series(1, $2) n",
    "INSERT INTO allocations (kernel_id, agent_id, slot, device_id, amount) "
    "SELECT md5('k' || $1 || n)::uuid, $1, slot, '', 1 "
    "FROM generate_series(1, $2) n, (VALUES ('cpu'), ('mem')) AS s(slot)",
    "SELECT md5('k' || $1 || n)::uuid AS id FROM generate_series(1, $2) n",
)


class ReportingAgent:
    """An agent with ``count`` kernels, attached to a manager's links."""

    def __init__(self, store: Store, links: AgentLinks, count: int) -> None:
        self.name = f"scale-{count}"
        self._store = store
        self._links = links
        self.count = count
        offers = tuple(SlotOffer(slot, 1 << 40) for slot in ("cpu", "mem"))
        info = AgentInfo(
            AgentId(self.name),
            "default",
            address="127.0.0.1",
            version="0",
            arch="x86_64",
            runtimes=("docker",),
            engines=("custom",),
            offers=offers,
        )
        self._report = Report(info, "1", 0, (), stream=1)
        self._sender = ReportSender(deltas=True)
        self._kernels: list[Observation] = []

    async def attach(self) -> None:
        first = AgentStream(ReportSender().next_message(self._report), LinkCaller())
        await self._links.apply_report(first, first.first)
        rows: list[Any] = []
        for sql in INSERT:
            rows = await self._store.database.fetch(sql, self.name, self.count)

        preparing = ObservedState.PREPARING
        self._kernels = [
            Observation(KernelId(row["id"]), SessionId("s"), preparing) for row in rows
        ]
        self._report = replace(self._report, stream=2)
        self._stream = AgentStream(self._sender.next_message(self._full()), LinkCaller())
        await self._links.apply_report(self._stream, self._stream.first)

    def _full(self) -> Report:
        return replace(self._report, kernels=tuple(self._kernels))

    async def report(self, number: int, meter: Meter) -> None:
        """Report one change."""
        index = number % self.count
        self._kernels[index] = replace(self._kernels[index], detail=f"pulling: {number} MB")
        report = self._report
        changed = (self._kernels[index],)
        delta = ReportDelta(
            report.incarnation,
            report.orders_generation,
            kernels=changed,
            removed=frozenset(),
            info=report.info,
        )
        wire = self._sender.next_message(delta)
        await asyncio.sleep(0.03)  # the ends of a real link do not share a process
        message = self._stream.receive(wire, time.monotonic())
        assert message is not None
        with meter.step("manager: apply a report of one change"):
            await self._links.apply_report(self._stream, message)


class Reports:
    """One agent with ``size`` kernels."""

    def __init__(self, dsn: str, size: int) -> None:
        self._dsn = dsn
        self._size = size
        self._number = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Reports:
        clock = SystemClock()
        store = await self._stack.enter_async_context(Store(self._dsn, clock))
        self._agent = ReportingAgent(store, AgentLinks(store, ManagerMetrics(), clock), self._size)
        await self._agent.attach()
        await store.database.fetch("ANALYZE")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def round(self, meter: Meter) -> None:
        for _ in range(REPORTS):
            self._number += 1
            await self._agent.report(self._number, meter)
            await asyncio.sleep(0.03)  # past the batch writer's pause


CASES = {"kernels": Case(Reports, (100, 1_000, 10_000), (100, 1_000))}
