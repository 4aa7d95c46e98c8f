"""Sessions created over HTTP and driven to RUNNING and to their end, all durable, by played agents over gRPC.

    python benchmarks/bench_life.py [--seconds 60] [--rate 100] [--sustain 1000 1100] [--agents 200]

Postgres, a manager, `moorage simulate` and this load are processes of their own. First ``--many`` agents
that have nothing to do, then arrivals at ``--rate`` a second; then on ``--agents`` the same, and
``--sustain`` a second for ``--seconds``. Each session takes a GPU, a CPU and memory, starts in 1 to 5 ms and
runs 50 to 500 ms. Times are from sending the request to the answer (ack), and to the rows of SCHEDULED and
RUNNING in the history. Last, the same steps as they are usually built, one transaction per session and step
by plain asyncpg on eight connections, without HTTP and gRPC: the comparison.
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

from cluster import Cluster, cluster
from measuring import Caller, cpu_s, machine, machine_line, quantiles_ms, rss_mb
from moorage.manager.store import migrate
from naive import Naive

HERE = Path(__file__).parent
RESOURCES = {"cpu": 1, "mem": "64MiB", "cuda.device": 1}
BODY = json.dumps({"command": ["true"], "resources": RESOURCES, "runtime": "fake"}).encode()
SCRIPT = ("--start-time", "1ms..5ms", "--run-time", "50ms..500ms")


class Load:
    """What was sent when, by session."""

    def __init__(self, at: Cluster) -> None:
        self.at = at
        self.sent: dict[str, float] = {}
        self.ack_s: list[float] = []
        self.refused = 0

    async def create(self, caller: Caller) -> None:
        wall, start = time.time(), time.perf_counter()
        status, answer = await caller.call("POST", "/v1/sessions", BODY)
        self.ack_s.append(time.perf_counter() - start)
        if status == 201:
            # The id comes first in the answer: `{"id":"...`.
            self.sent[answer[7:43].decode()] = wall
        else:
            self.refused += 1

    async def paced(self, rate: float, seconds: float) -> None:
        """Arrivals at a fixed rate, whatever the answers do."""
        free: asyncio.Queue[Caller] = asyncio.Queue()
        callers = [self.at.caller() for _ in range(64)]
        for caller in callers:
            free.put_nowait(caller)

        async def one() -> None:
            caller = await free.get()
            await self.create(caller)
            free.put_nowait(caller)

        start, tasks = time.perf_counter(), []
        for n in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + n / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(one()))
        await asyncio.gather(*tasks)
        for caller in callers:
            caller.close()


async def part(at: Cluster, connection: asyncpg.Connection, rate: float, seconds: float) -> dict[str, Any]:
    """Arrivals at one rate: latencies, rates over the whole part (with its tail), CPU per session."""
    load = Load(at)
    before, start, began = at.cpu() | {"load": cpu_s(os.getpid())}, time.perf_counter(), time.time()
    await load.paced(rate, seconds)
    created_s = time.perf_counter() - start
    ids = list(load.sent)
    with suppress(TimeoutError):
        async with asyncio.timeout(120):
            while await _unfinished(connection):
                await asyncio.sleep(0.2)
    left = await _unfinished(connection)
    all_s = time.perf_counter() - start
    after = at.cpu() | {"load": cpu_s(os.getpid())}
    moments = await _moments(connection, ids)
    found: dict[str, Any] = {
        "rate": rate, "sessions": len(ids), "refused": load.refused, "not_ended": left,
        "created_per_s": len(ids) / created_s, "ended_per_s": (len(ids) - left) / all_s,
        "ack_ms": quantiles_ms(load.ack_s), "manager_rss_mb": rss_mb(at.pids["manager"]),
        "cpu_us_per_session": {name: 1e6 * (after[name] - before[name]) / len(ids) for name in after},
    }  # fmt: skip
    for status in ("SCHEDULED", "RUNNING"):
        waited = [moment - load.sent[id_] for id_, moment in moments[status].items()]
        found[f"{status.lower()}_ms"] = quantiles_ms(waited)
    # Those that were RUNNING within the time in which they were created: what was kept up with.
    running = sorted(moments["RUNNING"].values())
    found["running_per_s"] = sum(moment < began + created_s for moment in running) / created_s
    return found


async def _unfinished(connection: asyncpg.Connection) -> int:
    return int(
        await connection.fetchval(
            "SELECT count(*) FROM sessions WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
        )
    )


async def _moments(connection: asyncpg.Connection, ids: list[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {"SCHEDULED": {}, "RUNNING": {}}
    rows = await connection.fetch(
        "SELECT session_id::text AS id, to_status, min(extract(epoch FROM at))::float8 AS at "
        "FROM session_history WHERE to_status IN ('SCHEDULED', 'RUNNING') AND session_id = ANY ($1::uuid[]) "
        "GROUP BY 1, 2",
        ids,
    )
    for row in rows:
        found[row["to_status"]][row["id"]] = row["at"]
    return found


async def idle(at: Cluster, seconds: float) -> dict[str, float]:
    """Agents that have nothing to tell, in percent of one core."""
    await asyncio.sleep(3)
    before = at.cpu()
    await asyncio.sleep(seconds)
    used = {name: 100 * (after - before.get(name, 0)) / seconds for name, after in at.cpu().items()}
    return used | {"manager_rss_mb": rss_mb(at.pids["manager"])}


def tables(found: dict[str, Any]) -> str:
    lines = [
        "| agents | arrivals /s | sessions | RUNNING /s meanwhile | ack p50 / p99 ms "
        "| SCHEDULED p50 / p99 ms | RUNNING p50 / p99 ms "
        "| CPU µs per session: manager, Postgres, agents, load |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for agents, one in found["parts"]:
        times = " | ".join(
            f"{one[q]['p50']:.1f} / {one[q]['p99']:.0f}" for q in ("ack_ms", "scheduled_ms", "running_ms")
        )
        cpu = one["cpu_us_per_session"]
        spent = ", ".join(f"{cpu[name]:.0f}" for name in ("manager", "postgres", "agents", "load"))
        lines.append(
            f"| {agents} | {one['rate']:.0f} | {one['sessions']} | {one['running_per_s']:.0f} | {times} "
            f"| {spent} |"
        )
    plain, rest, last = found["naive"], found["idle"], found["parts"][-1][1]
    cpu = last["cpu_us_per_session"]
    ours = cpu["manager"] + cpu["postgres"]
    mb, ended = last["manager_rss_mb"], last["ended_per_s"]
    cpu_ratio = (plain["cpu_us"] + plain["postgres_us"]) / ours
    lines += [
        f"| naive: no HTTP, no gRPC, no agents | as many as go | {plain['sessions']} | {plain['per_s']:.0f} "
        f"| | | | {plain['cpu_us']:.0f}, {plain['postgres_us']:.0f} |",
        "",
        f"{found['many']} idle agents: manager {rest['manager']:.1f} % of a core, Postgres "
        f"{rest['postgres']:.1f} %, manager {rest['manager_rss_mb']:.0f} MB; after {last['rate']:.0f}/s its "
        f"manager has {mb:.0f} MB. Sessions to their end: Moorage {ended:.0f}/s (with the tail) ÷ naive "
        f"{plain['per_s']:.0f}/s = {ended / plain['per_s']:.1f}; CPU of manager and Postgres, naive ÷ "
        f"Moorage: {cpu_ratio:.1f}.",
    ]
    return "\n".join(lines)


def losses(found: dict[str, Any]) -> list[str]:
    """What is worse than half of the goals (design: performance)."""
    slow, last = found["parts"][1][1], found["parts"][-1][1]
    limits = {
        "ack p50 ms": (slow["ack_ms"]["p50"], 10),
        "SCHEDULED p50 ms": (slow["scheduled_ms"]["p50"], 20),
        "SCHEDULED p99 ms": (slow["scheduled_ms"]["p99"], 100),
        "idle agents, % of a core": (found["idle"]["manager"], 20),
        "manager MB": (max(found["idle"]["manager_rss_mb"], last["manager_rss_mb"]), 800),
        "sessions refused or not ended": (last["refused"] + last["not_ended"], 0),
        "arrivals not RUNNING meanwhile, %": (100 - 100 * last["running_per_s"] / last["rate"], 20),
    }
    return [f"{what}: {value:.1f} > {limit}" for what, (value, limit) in limits.items() if value > limit]


async def many(found: dict[str, Any], options: argparse.Namespace, steady: float) -> None:
    async with cluster(options.many, *SCRIPT) as at:
        connection = await asyncpg.connect(at.dsn)
        found["idle"] = await idle(at, steady)
        await Load(at).paced(options.rate, 2)  # warm
        found["parts"].append((options.many, await part(at, connection, options.rate, steady)))
        await connection.close()


async def busy(found: dict[str, Any], options: argparse.Namespace, steady: float) -> None:
    async with cluster(options.agents, *SCRIPT) as at:
        connection = await asyncpg.connect(at.dsn)
        await Load(at).paced(options.rate, 2)  # warm
        load = [(options.rate, steady), *((rate, options.seconds) for rate in options.sustain)]
        for rate, seconds in load:
            found["parts"].append((options.agents, await part(at, connection, rate, seconds)))
        # In a database of its own: the manager would take care of its sessions too.
        await connection.execute("CREATE DATABASE naive")
        await connection.close()
        dsn = urlunsplit(urlsplit(at.dsn)._replace(path="/naive"))
        await migrate(dsn)
        found["naive"] = await Naive(dsn, at.pids["postgres"]).lives(min(5.0, steady))


async def main() -> None:
    parser = argparse.ArgumentParser(description="Create → SCHEDULED → RUNNING → ended, at speed.")
    parser.add_argument("--many", type=int, default=1000, help="agents of the first part (1000)")
    parser.add_argument("--agents", type=int, default=200, help="agents of the second part (200)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="length of the last parts; the rest scales"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="arrivals a second at ease (100)")
    parser.add_argument(
        "--sustain",
        type=float,
        nargs="+",
        default=[1000.0, 1100.0],
        help="arrivals a second in the last parts",
    )
    parser.add_argument("--json", type=Path, default=HERE / "results" / "life.json")
    parser.add_argument(
        "--check", action="store_true", help="fail on gross loss: worse than half the goal, twice (for CI)"
    )
    options = parser.parse_args()
    lost = await measure(options)
    if options.check and lost:
        # Of 500 sessions a single pause of a shared machine is the slowest hundredth. Loss stays.
        print("worse than half of the goal, measured again: " + "; ".join(lost), flush=True)
        lost = await measure(options)
    if options.check and lost:
        sys.exit("worse than half of the goal, twice: " + "; ".join(lost))


async def measure(options: argparse.Namespace) -> list[str]:
    """Print the table; what is lost, as ``losses``."""
    found: dict[str, Any] = {"machine": machine(), "many": options.many, "parts": []}
    steady = min(20.0, max(5.0, options.seconds / 3))
    await many(found, options, steady)
    await busy(found, options, steady)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=1))
    print(tables(found) + "\n\n" + machine_line(found["machine"]), flush=True)
    return losses(found)


if __name__ == "__main__":
    uvloop.run(main())  # as the daemons: the load takes a part of the same two cores
