"""Throughput and latency of sessions, from HTTP request to RUNNING to their end, with simulated
agents over gRPC.

    python benchmarks/bench_life.py [--seconds 60] [--rate 100] [--sustain 1000 1100] [--agents 200]

Postgres, a manager, `moorage simulate` and the load generator are separate processes. First
``--many`` idle agents, then arrivals at ``--rate`` per second; then the same with ``--agents``
agents, and ``--sustain`` per second for ``--seconds``. Each session requests a GPU, a CPU and
memory, starts in 1 to 5 ms and runs 50 to 500 ms. Latencies are from sending the request to the
response (ack), and to the SCHEDULED and RUNNING rows of the history. The last part is the
comparison: the same steps as usually implemented, with one transaction per session and step through
asyncpg on eight connections, without HTTP and gRPC.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import uvloop

from cluster import Cluster, start_cluster
from measuring import Caller, cpu_s, machine, machine_line, quantiles_ms, rss_mb
from moorage.manager.store import migrate
from naive import Naive

HERE = Path(__file__).parent
RESOURCES = {"cpu": 1, "mem": "64MiB", "cuda.device": 1}
BODY = json.dumps({"command": ["true"], "resources": RESOURCES, "runtime": "fake"}).encode()
# Sessions per second of the naive peer, and the factor by which ours exceed it, on the machine for
# which the goals were set.
PEER_PER_S = 416
MULTIPLE = 2.6
PROFILE = ("--start-time", "1ms..5ms", "--run-time", "50ms..500ms")


class Load:
    """``sent``: when a session's request was sent, in Unix seconds. ``ack_s``: latencies of the
    responses."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent: dict[str, float] = {}
        self.ack_s: list[float] = []
        self.refused = 0

    async def create(self, caller: Caller) -> None:
        sent = time.time()
        start = time.perf_counter()
        status, response = await caller.call("POST", "/v1/sessions", BODY)
        self.ack_s.append(time.perf_counter() - start)
        if status == 201:
            # The id comes first in the response: `{"id":"...`.
            self.sent[response[7:43].decode()] = sent
        else:
            self.refused += 1

    async def create_at_rate(self, rate: float, seconds: float) -> None:
        """Arrivals at a fixed rate, however long the responses take."""
        free: asyncio.Queue[Caller] = asyncio.Queue()
        callers = [self.cluster.caller(number) for number in range(64)]
        for caller in callers:
            free.put_nowait(caller)

        async def create() -> None:
            caller = await free.get()
            await self.create(caller)
            free.put_nowait(caller)

        start = time.perf_counter()
        tasks = []
        for n in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + n / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(create()))

        await asyncio.gather(*tasks)
        for caller in callers:
            caller.close()


async def measure_rate(
    cluster: Cluster, connection: asyncpg.Connection, rate: float, seconds: float
) -> dict[str, Any]:
    """Arrivals at one rate: latencies, rates until the last session has ended, and CPU per
    session."""
    load = Load(cluster)
    before = cluster.cpu() | {"load": cpu_s(os.getpid())}
    start = time.perf_counter()
    started_at = time.time()
    await load.create_at_rate(rate, seconds)
    created_s = time.perf_counter() - start
    ids = list(load.sent)

    with suppress(TimeoutError):
        async with asyncio.timeout(120):
            while await _unfinished(connection):
                await asyncio.sleep(0.2)

    unfinished = await _unfinished(connection)
    all_s = time.perf_counter() - start
    after = cluster.cpu() | {"load": cpu_s(os.getpid())}
    reached = await _times_reached(connection, ids)
    results: dict[str, Any] = {
        "rate": rate, "sessions": len(ids), "refused": load.refused, "not_ended": unfinished,
        "created_per_s": len(ids) / created_s, "ended_per_s": (len(ids) - unfinished) / all_s,
        "ack_ms": quantiles_ms(load.ack_s), "manager_rss_mb": rss_mb(cluster.pids["manager"]),
        "cpu_us_per_session": {name: 1e6 * (after[name] - before[name]) / len(ids) for name in after},
    }  # fmt: skip
    for status in ("SCHEDULED", "RUNNING"):
        waited = [at - load.sent[id_] for id_, at in reached[status].items()]
        results[f"{status.lower()}_ms"] = quantiles_ms(waited)

    # Sessions that were RUNNING while sessions were being created: the rate that is sustained.
    running = sorted(reached["RUNNING"].values())
    results["running_per_s"] = sum(at < started_at + created_s for at in running) / created_s
    return results


async def _unfinished(connection: asyncpg.Connection) -> int:
    return int(
        await connection.fetchval(
            "SELECT count(*) FROM sessions WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
    )


async def _times_reached(
    connection: asyncpg.Connection, ids: list[str]
) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {"SCHEDULED": {}, "RUNNING": {}}
    rows = await connection.fetch(
        "SELECT session_id::text AS id, to_status, min(extract(epoch FROM at))::float8 AS at "
        "FROM session_history WHERE to_status IN ('SCHEDULED', 'RUNNING') AND session_id = ANY ($1::uuid[]) "
        "GROUP BY 1, 2",
        ids,
    )
    for row in rows:
        results[row["to_status"]][row["id"]] = row["at"]

    return results


async def measure_idle(cluster: Cluster, seconds: float) -> dict[str, float]:
    """CPU use with idle agents, in percent of one core."""
    await asyncio.sleep(3)
    before = cluster.cpu()
    await asyncio.sleep(seconds)
    used = {
        name: 100 * (after - before.get(name, 0)) / seconds for name, after in cluster.cpu().items()
    }
    return used | {"manager_rss_mb": rss_mb(cluster.pids["manager"])}


def format_results(results: dict[str, Any]) -> str:
    lines = [
        "| agents | arrivals /s | sessions | RUNNING /s during arrivals | ack p50 / p99 ms "
        "| SCHEDULED p50 / p99 ms | RUNNING p50 / p99 ms "
        "| CPU µs per session: manager, Postgres, agents, load |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for agents, one in results["parts"]:
        times = " | ".join(
            f"{one[q]['p50']:.1f} / {one[q]['p99']:.0f}"
            for q in ("ack_ms", "scheduled_ms", "running_ms")
        )
        cpu = one["cpu_us_per_session"]
        spent = ", ".join(f"{cpu[name]:.0f}" for name in ("manager", "postgres", "agents", "load"))
        lines.append(
            f"| {agents} | {one['rate']:.0f} | {one['sessions']} | {one['running_per_s']:.0f} | {times} "
            f"| {spent} |"
        )

    plain = results["naive"]
    rest = results["idle"]
    last = results["parts"][-1][1]
    cpu = last["cpu_us_per_session"]
    ours = cpu["manager"] + cpu["postgres"]
    mb = last["manager_rss_mb"]
    ended = last["ended_per_s"]
    cpu_ratio = (plain["cpu_us"] + plain["postgres_us"]) / ours
    lines += [
        f"| naive: no HTTP, no gRPC, no agents | maximum | {plain['sessions']} | {plain['per_s']:.0f} "
        f"| | | | {plain['cpu_us']:.0f}, {plain['postgres_us']:.0f} |",
        "",
        f"{results['many']} idle agents: manager {rest['manager']:.1f} % of a core, Postgres "
        f"{rest['postgres']:.1f} %, manager {rest['manager_rss_mb']:.0f} MB; after {last['rate']:.0f}/s its "
        f"manager has {mb:.0f} MB. Sessions to their end: Moorage {ended:.0f}/s (with the tail) ÷ naive "
        f"{plain['per_s']:.0f}/s = {ended / plain['per_s']:.1f}; CPU of manager and Postgres, naive ÷ "
        f"Moorage: {cpu_ratio:.1f}.",
    ]

    return "\n".join(lines)


def find_regressions(results: dict[str, Any]) -> list[str]:
    """Results that miss their goal by more than a factor of two (design: performance).

    If the naive peer is slower in this run than on the machine for which the goals were set, times
    may be longer by the same factor. Sessions per second must reach the requested rate, or half of
    the goal's multiple of the peer's.
    """
    slow = results["parts"][1][1]
    last = results["parts"][-1][1]
    peer = results["naive"]["per_s"]
    slowness = max(1.0, PEER_PER_S / peer)
    keeps_up = last["ended_per_s"] >= 0.5 * MULTIPLE * peer
    limits = {
        "ack p50 ms": (slow["ack_ms"]["p50"], 10 * slowness),
        "SCHEDULED p50 ms": (slow["scheduled_ms"]["p50"], 20 * slowness),
        "SCHEDULED p99 ms": (slow["scheduled_ms"]["p99"], 100 * slowness),
        "idle agents, % of a core": (results["idle"]["manager"], 20),
        "manager MB": (max(results["idle"]["manager_rss_mb"], last["manager_rss_mb"]), 800),
        "sessions refused or not ended": (last["refused"] + last["not_ended"], 0),
        "arrivals not RUNNING during arrivals, %": (
            100 - 100 * last["running_per_s"] / last["rate"],
            100 if keeps_up else 20,
        ),
    }

    return [
        f"{name}: {value:.1f} > {limit:.1f}"
        for name, (value, limit) in limits.items()
        if value > limit
    ]


async def run_many_agents(
    results: dict[str, Any], options: argparse.Namespace, steady: float
) -> None:
    async with start_cluster(options.many, *PROFILE) as cluster:
        connection = await asyncpg.connect(cluster.dsn)
        results["idle"] = await measure_idle(cluster, steady)
        await Load(cluster).create_at_rate(options.rate, 2)  # warm
        results["parts"].append(
            (options.many, await measure_rate(cluster, connection, options.rate, steady))
        )
        await connection.close()


async def run_sustained(
    results: dict[str, Any], options: argparse.Namespace, steady: float
) -> None:
    async with start_cluster(options.agents, *PROFILE) as cluster:
        connection = await asyncpg.connect(cluster.dsn)
        await Load(cluster).create_at_rate(options.rate, 2)  # warm
        load = [(options.rate, steady), *((rate, options.seconds) for rate in options.sustain)]
        for rate, seconds in load:
            results["parts"].append(
                (options.agents, await measure_rate(cluster, connection, rate, seconds))
            )

        # In a separate database, because the manager would also schedule its sessions.
        await connection.execute("CREATE DATABASE naive")
        await connection.close()
        dsn = urlunsplit(urlsplit(cluster.dsn)._replace(path="/naive"))
        await migrate(dsn)
        results["naive"] = await Naive(dsn, cluster.pids["postgres"]).lives(min(5.0, steady))


async def main() -> None:
    parser = argparse.ArgumentParser(description="Create → SCHEDULED → RUNNING → ended, at speed.")
    parser.add_argument("--many", type=int, default=1000, help="agents of the first part (1000)")
    parser.add_argument("--agents", type=int, default=200, help="agents of the second part (200)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="length of the last parts; the rest scales"
    )
    parser.add_argument(
        "--rate", type=float, default=100.0, help="arrivals per second at first (100)"
    )
    parser.add_argument(
        "--sustain",
        type=float,
        nargs="+",
        default=[1000.0, 1100.0],
        help="arrivals per second in the last parts",
    )
    parser.add_argument("--json", type=Path, default=HERE / "results" / "life.json")
    parser.add_argument(
        "--check", action="store_true", help="fail if below half of a goal three times (for CI)"
    )
    options = parser.parse_args()
    regressions = await measure(options)
    for _ in range(2):
        if options.check and regressions:
            # One pause on a shared machine is the slowest hundredth of 500 sessions. A real
            # regression persists.
            print("below half of the goal, measuring again: " + "; ".join(regressions), flush=True)
            regressions = await measure(options)

    if options.check and regressions:
        sys.exit("below half of the goal, three times: " + "; ".join(regressions))


async def measure(options: argparse.Namespace) -> list[str]:
    """Print the table; returns the regressions."""
    results: dict[str, Any] = {"machine": machine(), "many": options.many, "parts": []}
    steady = min(20.0, max(5.0, options.seconds / 3))
    await run_many_agents(results, options, steady)
    await run_sustained(results, options, steady)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1))
    print(format_results(results) + "\n\n" + machine_line(results["machine"]), flush=True)
    return find_regressions(results)


if __name__ == "__main__":
    uvloop.run(main())  # like the daemons: the load shares the same cores
