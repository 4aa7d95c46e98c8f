"""Cost of usage statistics: measuring kernels on an agent, and writing the usage of a fleet.

    python benchmarks/bench_usage.py [--kernels 50] [--agents 1000] [--per-agent 10] [--seconds 12]

Agent: measures real processes under their supervisors repeatedly, with the agent's own code. Prints
the CPU time of one measurement, its share of a core at one every five seconds, and the resident
memory.

Manager: starts a durable Postgres and loads it as a fleet does that measures every five seconds.
Each second, one statement writes a fifth of the fleet, and another the minutes of a sixtieth of all
kernels. Prints the duration of the statements and the volume of WAL. Then takes samples for the load
over time as the leader does every 30 seconds, and prints their duration, WAL and size on disk; for
300 nodes with 8 GPUs each:

    python benchmarks/bench_usage.py --agents 300 --per-agent 8
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from measuring import machine, machine_line, median
from moorage.agent.devices.usage.rates import MinuteAggregator, usage_between
from moorage.agent.runtimes import Launch, ProcessRuntime
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.model.ids import AgentId, DeviceId, KernelId
from moorage.common.model.resource_usage import DeviceUse, KernelMinute, KernelUse, UsageReport, Use
from moorage.manager.identity.scope import Scope
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.store import Store, migrate

EVERY_S = 5.0
CLOCK = SystemClock()


async def agent_side(kernels: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        runtime = ProcessRuntime(
            home, LogStore(home / "logs"), log_max_bytes=1 << 20, log_keep_files=1
        )
        await runtime.probe()
        handles = {}
        for _ in range(kernels):
            kernel = KernelId(CLOCK.new_id())
            launch = Launch(
                kernel, ("/bin/sh", "-c", "sleep 3600 & sleep 3600"), {"PATH": "/bin:/usr/bin"}
            )
            handles[kernel] = await runtime.create(launch)

        try:
            minutes = MinuteAggregator()
            before = await runtime.usage(handles)
            spent = []
            for number in range(rounds):
                began = time.process_time()
                now = await runtime.usage(handles)
                for kernel, counters in now.items():
                    minutes.add(
                        kernel,
                        EVERY_S * number,
                        usage_between(before[kernel], counters, EVERY_S, (None, None)),
                    )

                before = now
                spent.append(time.process_time() - began)
        finally:
            for handle in handles.values():
                await runtime.destroy(handle)

        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        mean = sum(spent) / len(spent)
        print(f"agent: {kernels} kernels of 3 processes each, {rounds} measurements")
        print(
            f"  one measurement   {1000 * mean:.2f} ms of CPU time (longest {1000 * max(spent):.2f})"
        )
        print(f"  every {EVERY_S:g} s         {100 * mean / EVERY_S:.3f} % of a core")
        print(f"  resident          {resident:.0f} MiB, the whole benchmark process")


async def manager_side(agents: int, per_agent: int, seconds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        Path(folder).chmod(0o711)
        async with EmbeddedPostgres(
            Path(folder) / "postgres", bin_dir=None, port=None, clock=CLOCK
        ) as postgres:
            await migrate(postgres.dsn)
            async with Store(postgres.dsn, CLOCK) as store:
                fleet = await _fleet(store, agents, per_agent)
                await _load(store, fleet, seconds)
                await _samples(store, len(fleet))


async def _fleet(store: Store, agents: int, per_agent: int) -> list[tuple[AgentId, list[KernelId]]]:
    """Insert the fleet directly; inserting is not measured."""
    await store.database.fetch(
        "INSERT INTO agents (id, resource_group, status, identity, incarnation, stream, address, version,"
        " arch, runtimes, engines, labels, leaving, connected_at, last_seen)"
        " SELECT 'node-' || n, 'default', 'ALIVE', '', 'i', 1, 'h', '1', 'x', '{}', '{}', '{}', false,"
        " now(), now()"
        " FROM generate_series(1, $1) n",
        agents,
    )
    await store.database.fetch(
        "WITH created AS (INSERT INTO sessions (id, name, type, status, resource_group, priority, spec,"
        " slots, created_by, owner) SELECT gen_random_uuid(), 's-' || n, 'batch', 'RUNNING',"
        " 'default', 10, '{}',"
        " '{}', 'b', 'b' FROM generate_series(1, $1) n RETURNING id, substr(name, 3)::int AS n)"
        " INSERT INTO kernels (id, session_id, attempt, status, secret, agent_id)"
        " SELECT gen_random_uuid(), id, 1, 'RUNNING', 's', 'node-' || (1 + n % $2) FROM created",
        agents * per_agent,
        agents,
    )
    found: dict[AgentId, list[KernelId]] = {}
    for row in await store.database.fetch("SELECT id, agent_id FROM kernels"):
        found.setdefault(AgentId(row["agent_id"]), []).append(KernelId(row["id"]))

    await store.database.fetch("ANALYZE")
    return sorted(found.items())


async def _load(store: Store, fleet: list[tuple[AgentId, list[KernelId]]], seconds: int) -> None:
    every = [(agent, kernel) for agent, kernels in fleet for kernel in kernels]
    devices = tuple(
        DeviceUse(DeviceId(f"GPU-{n}"), n, gpu=420, temperature=55, power=70_000) for n in range(8)
    )
    put_s = []
    minutes_s = []
    wal = "SELECT pg_current_wal_lsn() - '0/0' AS bytes"
    before = (await store.database.fetchrow(wal))["bytes"]
    minute = int(CLOCK.now().timestamp()) // 60 * 60
    for second in range(seconds):
        began = time.monotonic()
        one = Use(second, 2**30 + second, rx=5, tx=6, gpu=7, gpu_memory=8)
        part = fleet[second % 5 :: 5]
        reports = [
            UsageReport(
                agent,
                "i",
                cpu=4000,
                memory=2**31,
                kernels=tuple(KernelUse(k, one) for k in kernels),
                devices=devices,
            )
            for agent, kernels in part
        ]
        await store.usage.put(reports)
        put_s.append(time.monotonic() - began)
        began = time.monotonic()
        ended = [
            (UsageReport(agent, "i", 0, 0), KernelMinute(kernel, minute, 12, one, one))
            for agent, kernel in every[second % 60 :: 60]
        ]
        await store.usage.put_minutes(ended)
        minutes_s.append(time.monotonic() - began)
        await asyncio.sleep(max(0.0, 1.0 - put_s[-1] - minutes_s[-1]))

    wrote = (await store.database.fetchrow(wal))["bytes"] - before
    hot = await store.database.fetchrow(
        "SELECT n_tup_hot_upd AS hot, n_tup_upd AS all FROM pg_stat_user_tables"
        " WHERE relname = 'kernel_usage'"
    )
    began = time.monotonic()
    await store.usage.top_sessions(Scope.system(), sort="cpu", limit=100)
    top_s = time.monotonic() - began
    began = time.monotonic()
    await store.usage.compact(86_400)
    compact_s = time.monotonic() - began
    print(
        f"manager: {len(fleet)} agents, {len(every)} kernels, {seconds} s, measured every {EVERY_S:g} s"
    )
    print(f"  newest values     {len(every) // 5} kernels per statement: {_ms(put_s)}")
    print(f"  minutes           {len(every) // 60} per statement: {_ms(minutes_s)}")
    in_place = f"updates in place (HOT): {hot['hot']}/{hot['all']}"
    print(f"  WAL               {wrote / seconds / 1024:.0f} KiB/s; {in_place}")
    print(
        f"  top of all        {1000 * top_s:.0f} ms;  compaction with nothing to do {1000 * compact_s:.1f} ms"
    )


SAMPLES = 20


async def _samples(store: Store, agents: int) -> None:
    """Samples of the load of all nodes and of as many endpoints, each in the same minute, hour and
    day as the one before."""
    await store.database.fetch(
        "INSERT INTO endpoints (id, name, spec, replicas, created_by, owner)"
        " SELECT gen_random_uuid(), 'e-' || n, '{}', 1, 'b', 'b' FROM generate_series(1, $1) n",
        agents,
    )
    term = await store.leases.acquire("bench", 3600.0)
    assert term is not None
    await store.load_history.record(term)
    took = []
    wal = "SELECT pg_current_wal_lsn() - '0/0' AS bytes"
    before = (await store.database.fetchrow(wal))["bytes"]

    for _ in range(SAMPLES):
        await store.database.fetch("UPDATE agent_usage SET at = now()")
        began = time.monotonic()
        await store.load_history.record(term)
        took.append(time.monotonic() - began)

    wrote = (await store.database.fetchrow(wal))["bytes"] - before
    print(f"  load over time    {agents} nodes of 8 devices and {agents} endpoints: {_ms(took)}")
    print(f"                    WAL {wrote / SAMPLES / 1024:.0f} KiB per sample, one every 30 s")
    for table in ("agent_load_spans", "endpoint_load_spans"):
        size = await store.database.fetchrow(
            f"SELECT avg(pg_column_size(t.*)) AS bytes FROM {table} t"
        )
        print(f"                    {table}: {1440 * agents} rows a day of {size['bytes']:.0f} B")


def _ms(times: list[float]) -> str:
    return f"median {1000 * median(times):.1f} ms, longest {1000 * max(times):.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--per-agent", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=12)
    options = parser.parse_args()
    print(machine_line(machine()))
    asyncio.run(agent_side(options.kernels, 60))
    asyncio.run(manager_side(options.agents, options.per_agent, options.seconds))


if __name__ == "__main__":
    sys.exit(main())
