"""Cost of a report of one change, by the number of kernels of its agent.

    python benchmarks/scale_report.py [--kernels 100 10000] [--rounds 60]

Measures both ends of the agent link: the agent's from its kernels to the encoded message, and the manager's
from that message to the commit in a durable Postgres. The sizes take turns, so that the ratio does not depend
on what else the machine does. Prints medians.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import machine, machine_line, median
from moorage.common.aio.clock import SystemClock
from moorage.common.link.messages import AgentInfo, Observation, Report, SlotOffer
from moorage.common.link.sync import ReportSender
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.status import ObservedState
from moorage.manager.metrics import Metrics
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.rpc.agent_link import AgentLinks
from moorage.manager.rpc.agent_stream import AgentStream
from moorage.manager.rpc.authentication import Caller
from moorage.manager.store import Store, migrate

# Kernels that pull their image: each progress text is a change that is written.
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
        self.name, self._store, self._links, self.count = f"scale-{count}", store, links, count
        offers = tuple(SlotOffer(slot, 1 << 40) for slot in ("cpu", "mem"))
        info = AgentInfo(
            AgentId(self.name), "default", "127.0.0.1", "0", "x86_64", ("docker",), ("custom",), offers
        )
        self._report, self._sender = Report(info, "1", 0, (), stream=1), ReportSender(deltas=True)
        self._kernels: list[Observation] = []

    async def attach(self) -> None:
        first = AgentStream(ReportSender().next_message(self._report), Caller())
        await self._links.apply_report(first, first.first)
        rows: list[Any] = []
        for sql in INSERT:
            rows = await self._store.database.fetch(sql, self.name, self.count)
        preparing = ObservedState.PREPARING
        self._kernels = [Observation(KernelId(row["id"]), SessionId("s"), preparing) for row in rows]
        self._report = replace(self._report, stream=2)
        self._stream = AgentStream(self._sender.next_message(self._full()), Caller())
        await self._links.apply_report(self._stream, self._stream.first)

    def _full(self) -> Report:
        return replace(self._report, kernels=tuple(self._kernels))

    async def report(self, number: int) -> tuple[float, float]:
        """Report one change. Returns the seconds of the agent and of the manager."""
        index = number % self.count
        self._kernels[index] = replace(self._kernels[index], detail=f"pulling: {number} MB")
        began = time.perf_counter()
        wire = self._sender.next_message(self._full())
        sent = time.perf_counter()
        await asyncio.sleep(0.03)  # the ends of a real link do not share a process
        began, spent = time.perf_counter(), sent - began
        message = self._stream.receive(wire, began)
        assert message is not None
        await self._links.apply_report(self._stream, message)
        return spent, time.perf_counter() - began


async def measure_reports(dsn: str, sizes: Sequence[int], rounds: int) -> dict[int, tuple[float, float]]:
    """Median seconds of agent and manager, by number of kernels, in a migrated database."""
    async with Store(dsn, SystemClock()) as store:
        links = AgentLinks(store, Metrics(), SystemClock())
        agents = [ReportingAgent(store, links, count) for count in sizes]
        for agent in agents:
            await agent.attach()
        await store.database.fetch("ANALYZE")
        found: dict[int, list[tuple[float, float]]] = {agent.count: [] for agent in agents}
        for number in range(1, rounds + 10):
            for agent in agents:
                seconds = await agent.report(number)
                if number >= 10:  # the first ones prepare statements and warm caches
                    found[agent.count].append(seconds)
                await asyncio.sleep(0.03)  # past the batch writer's pause
    return {
        count: (median([a for a, _ in pairs]), median([m for _, m in pairs]))
        for count, pairs in found.items()
    }


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    host, directory = machine(), Path(tempfile.mkdtemp(prefix="moorage-scale-"))
    directory.chmod(0o711)
    try:
        async with EmbeddedPostgres(directory / "pg", clock=SystemClock()) as postgres:
            await migrate(postgres.dsn)
            found = await measure_reports(postgres.dsn, args.kernels, args.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(machine_line(host))
    print("| kernels | agent, ms | manager, ms | manager, ratio |\n|---:|---:|---:|---:|")
    smallest = found[args.kernels[0]][1]
    for count, (agent, manager) in found.items():
        print(f"| {count} | {agent * 1000:.2f} | {manager * 1000:.2f} | {manager / smallest:.2f} |")


if __name__ == "__main__":
    asyncio.run(main())
