"""Agents that change managers: how long it takes, and what the API shows in the meantime.

    python benchmarks/spread.py [--agents 10000] [--managers 3] [--rate 5]

A durable Postgres, the managers and `moorage simulate` run in separate processes. The last manager,
which does not lead, is killed (SIGKILL), and the time until all its agents are connected to the
others is measured. Then it starts again, and the time until it has its share is measured. During
all this, sessions are created on the leader, and new terms of the lease are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from cluster import Cluster, manager_name, start_cluster, wait_until_ready
from measuring import machine, machine_line, quantiles_ms
from moorage.manager.rpc.spreading import is_uneven

HERE = Path(__file__).parent
GOAL_S = 30.0
POSTGRES = {"max_connections": "300"}
SESSION = {"type": "batch", "command": ["true"], "resources": {"cpu": "0.1"}}
PROFILE = ("--start-time", "1ms..5ms", "--run-time", "50ms..500ms")


async def by_manager(connection: Any) -> dict[str, int]:
    """Number of agents of each manager that is up."""
    rows = await connection.fetch(
        "SELECT m.link, count(a.id) AS n FROM managers m LEFT JOIN agents a ON a.manager = m.id GROUP BY 1"
    )
    return {row["link"]: row["n"] for row in rows}


async def until(
    connection: Any, is_done: Callable[[Mapping[str, int]], bool], limit_s: float = 600.0
) -> float:
    """Seconds until the condition holds, or the limit if it does not."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < limit_s:
        counts = await by_manager(connection)
        if is_done(counts):
            return passed

        await asyncio.sleep(0.25)

    return limit_s


class Probe:
    """Creates sessions on the first manager, ``rate`` per second."""

    def __init__(self, cluster: Cluster, rate: float) -> None:
        self._caller = cluster.caller(0)
        self._pause_s = 1 / rate
        self.took: list[float] = []
        self.refused = 0

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            status, _ = await self._caller.call(
                "POST", "/v1/sessions", json.dumps(SESSION).encode()
            )
            self.took.append(time.monotonic() - began)
            self.refused += status != 201
            await asyncio.sleep(max(0.0, self._pause_s - self.took[-1]))

    def take(self) -> dict[str, Any]:
        took = self.took
        self.took = []
        refused = self.refused
        self.refused = 0
        return {"creates": len(took), "refused": refused, "create_ms": quantiles_ms(took)}


async def term(connection: Any) -> int:
    return int(await connection.fetchval("SELECT term FROM leases WHERE name = 'leader'"))


async def measure(agents: int, managers: int, rate: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    async with start_cluster(agents, *PROFILE, settings=POSTGRES, managers=managers) as cluster:
        connection = await asyncpg.connect(cluster.dsn)
        probe = Probe(cluster, rate)

        async def step(name: str, is_done: Callable[[Mapping[str, int]], bool]) -> None:
            cpu = cluster.cpu()
            before = await term(connection)
            took = await until(connection, is_done)
            used = {who: now - cpu.get(who, 0.0) for who, now in cluster.cpu().items()}
            counts = sorted((await by_manager(connection)).values())
            row = {"step": name, "seconds": took, "counts": counts, "cpu_s": used} | probe.take()
            rows.append(row | {"new_terms": await term(connection) - before})
            print(json.dumps(rows[-1]), flush=True)

        def is_even(counts: Mapping[str, int]) -> bool:
            return (
                len(counts) == managers and sum(counts.values()) == agents and not is_uneven(counts)
            )

        def has_all(counts: Mapping[str, int]) -> bool:
            return len(counts) == managers - 1 and sum(counts.values()) == agents

        await until(connection, is_even)
        probing = asyncio.create_task(probe.run())
        try:
            await asyncio.sleep(10)
            rows.append({"step": "before", "seconds": 10.0} | probe.take())
            last = manager_name(managers)
            os.kill(cluster.pids.pop(last), signal.SIGKILL)
            await step("killed", has_all)
            await asyncio.sleep(5)
            probe.take()
            cluster.start(managers)
            await wait_until_ready(cluster, managers - 1)
            await step("came", is_even)
        finally:
            probing.cancel()
            await connection.close()

    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | s | creates, p50, p99, max ms | refused | terms | agents |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        ms = row["create_ms"]
        lines.append(
            f"| {row['step']} | {row['seconds']:.1f} | {row['creates']}: {ms['p50']:.0f}, {ms['p99']:.0f}, "
            f"{ms['max']:.0f} | {row['refused']} | {row.get('new_terms', 0)} "
            f"| {', '.join(map(str, row.get('counts', ())))} |"
        )

    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--managers", type=int, default=3)
    parser.add_argument("--rate", type=float, default=5.0)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "spread.json")
    args = parser.parse_args()
    host = machine()
    rows = await measure(args.agents, args.managers, args.rate)
    print(machine_line(host))
    print(table(rows))
    print(f"goal: the agents of a manager that dies are with the others in {GOAL_S:g} s")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": host, "rows": rows}, indent=1))


if __name__ == "__main__":
    uvloop.run(main())
