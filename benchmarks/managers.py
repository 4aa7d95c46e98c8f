"""Three managers compared with one on the same cores: CPU per session, and the cost of idle agents
with three managers.

    python benchmarks/managers.py [--rate 50] [--seconds 15] [--agents 200] [--rounds 2] [--idle
    3000]

A durable Postgres, the managers, `moorage simulate` and the load generator are separate processes.
One manager and three take turns; requests go to the managers in turn. CPU is that of all managers
and of Postgres. Then ``--idle`` agents connect to three managers, each with its own connection, and
nothing happens. failover.py measures the cost of losing a process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from bench_life import PROFILE, measure_rate
from cluster import Cluster, start_cluster
from measuring import machine, machine_line

HERE = Path(__file__).parent
GOAL_RATIO = 1.15
GOAL_IDLE_AGENTS = 10_000
GOAL_PERCENT = 25.0
SETTLED_S = 40.0
POSTGRES = {"max_connections": "300"}


def split(cpu: dict[str, float]) -> tuple[float, float]:
    """Of all managers, and of Postgres."""
    return sum(used for name, used in cpu.items() if name.startswith("manager")), cpu["postgres"]


async def sessions(managers: int, agents: int, rate: float, seconds: float) -> dict[str, Any]:
    async with start_cluster(agents, *PROFILE, settings=POSTGRES, managers=managers) as cluster:
        connection = await asyncpg.connect(cluster.dsn)
        try:
            await measure_rate(cluster, connection, rate, 3)  # warms caches, and lets agents spread
            found = await measure_rate(cluster, connection, rate, seconds)
        finally:
            await connection.close()

    own, postgres = split(found["cpu_us_per_session"])
    return {
        "managers": managers, "manager_us": own, "postgres_us": postgres,
        "running_per_s": found["running_per_s"], "running_ms": found["running_ms"],
        "ack_ms": found["ack_ms"], "refused": found["refused"], "not_ended": found["not_ended"],
    }  # fmt: skip


async def idle(agents: int, seconds: float) -> dict[str, Any]:
    """In percent of a core."""
    async with start_cluster(agents, settings=POSTGRES, managers=3) as cluster:
        await asyncio.sleep(SETTLED_S)
        before = cluster.cpu()
        await asyncio.sleep(seconds)
        used = {name: 100 * (now - before[name]) / seconds for name, now in cluster.cpu().items()}
        own, postgres = split(used)

        return {
            "agents": agents,
            "managers": own,
            "postgres": postgres,
            "spread": await spread(cluster),
        }


async def spread(cluster: Cluster) -> list[int]:
    """Agents by manager."""
    connection = await asyncpg.connect(cluster.dsn)
    try:
        rows = await connection.fetch(
            "SELECT count(a.id) AS agents FROM managers m LEFT JOIN agents a ON a.manager = m.id "
            "GROUP BY m.id"
        )
        return sorted(row["agents"] for row in rows)
    finally:
        await connection.close()


def table(rounds: list[dict[str, Any]], rate: float) -> str:
    lines = [
        "| managers | rounds | arrivals /s | RUNNING p50, p99 ms | CPU µs per session: managers | Postgres "
        "| together | ÷ one |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    base = 0.0
    for managers in (1, 3):
        found = [one for one in rounds if one["managers"] == managers]
        own, postgres = (
            statistics.median(one[name] for one in found) for name in ("manager_us", "postgres_us")
        )
        base = base or own + postgres
        p50, p99 = (
            statistics.median(one["running_ms"][q] for one in found) for q in ("p50", "p99")
        )
        lines.append(
            f"| {managers} | {len(found)} | {rate:g} | {p50:.0f}, {p99:.0f} | {own:,.0f} | {postgres:,.0f} "
            f"| {own + postgres:,.0f} | {(own + postgres) / base:.2f} |"
        )

    return "\n".join(lines)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--idle", type=int, default=3000, help="0: not measured")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "managers.json")
    args = parser.parse_args()
    host = machine()
    rounds = [
        await sessions(managers, args.agents, args.rate, args.seconds)
        for _ in range(args.rounds)
        for managers in (1, 3)
    ]
    print(machine_line(host))
    print(table(rounds, args.rate))
    print(f"goal: {GOAL_RATIO} × one manager")
    quiet = await idle(args.idle, 20.0) if args.idle else None
    if quiet:
        print(
            f"{args.idle:,} idle agents over three managers ({', '.join(map(str, quiet['spread']))}): "
            f"managers {quiet['managers']:.1f} %, Postgres {quiet['postgres']:.1f} % of a core "
            f"(goal for {GOAL_IDLE_AGENTS:,}: {GOAL_PERCENT:g} % together)"
        )

    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": host, "rounds": rounds, "idle": quiet}, indent=1))


if __name__ == "__main__":
    uvloop.run(main())
