"""CPU time that the ledger costs a manager: proxies' usage records, budgets, metrics, and the end
of kernels.

    python benchmarks/bench_ledger.py [--seconds 20] [--sessions 100] [--records 400] [--budgets
                                      100] [--projects 100]

Starts a durable Postgres, fills the ledger as ``--history`` seconds of the same load would, and
then every second writes the records that proxies send, checks the budgets for ``--sessions`` new
sessions, and sums up all budgets every 10 s. Then its Prometheus metrics are generated once. Prints
the CPU time of this process, which is what a manager spends on the ledger. Triggers write the
kernels' records; their cost to Postgres is the difference between ending kernels with and without
them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import asyncpg

from measuring import machine, machine_line
from moorage.common.aio.clock import SystemClock
from moorage.common.link.proxy_messages import UsageBatch, UsageRecord
from moorage.common.model.spec import SessionSpec
from moorage.common.views.budgets import BudgetSpec
from moorage.manager.identity.keys import Owner
from moorage.manager.identity.scope import Scope
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.scrape import COST, LEDGER_AGE_S, Scrape
from moorage.manager.store import Store, migrate

CLOCK = SystemClock()
SYSTEM = Scope.system("bench")
WORK = SessionSpec.model_validate(
    {"name": "work", "type": "batch", "command": ["true"], "resources": {"cuda.device": 1}}
)
BATCH = 1000
PROJECTS = "INSERT INTO projects (name) SELECT 'p' || n FROM generate_series(0, $1 - 1) n"
FILL = """
INSERT INTO ledger (kernel_id, unit, device, rate, amount, began_at, ended_at, project, username, key_id,
                    model, endpoint, session_id, resource_group)
SELECT md5(n::text)::uuid, u.unit, '', 1000, 1000, t.at - interval '1 second', t.at,
       'p' || n % $3, 'u' || n % 500, '', '', '', n::text, 'default'
FROM generate_series(1, $1) n CROSS JOIN (VALUES ('gpu'), ('cpu'), ('memory')) u(unit)
CROSS JOIN LATERAL (SELECT date_trunc('second', now(), 'UTC') - make_interval(secs => $2 * n / $1) AS at) t
"""
AGENT = """
INSERT INTO agents (id, resource_group, status, identity, incarnation, stream, address, version, arch,
                    runtimes, engines, labels, leaving, connected_at, last_seen)
VALUES ('node', 'default', 'ALIVE', '', 'i', 1, 'h', '1', 'x', '{}', '{}', '{}', false, now(), now())
"""
SLOTS = """
INSERT INTO agent_slots (agent_id, slot, device_id, offered, capacity, model, memory_bytes, healthy)
VALUES ('node', 'cpu', '', 1, 1, '', 0, true), ('node', 'mem', '', 1, 1, '', 0, true)
"""
SESSIONS = """
INSERT INTO sessions (id, name, type, status, resource_group, priority, spec, slots, created_by, deadline_at,
                      owner, project)
SELECT md5($1 || n)::uuid, $1 || n, 'batch', 'RUNNING', 'default', 5, '{}', '{}', 't', now(), 'u', 'p'
FROM generate_series(1, $2::int) n
"""
KERNELS = """
INSERT INTO kernels (id, session_id, attempt, status, secret, agent_id, running_at)
SELECT md5('k' || $1 || n)::uuid, md5($1 || n)::uuid, 1, 'RUNNING', '', 'node', now() - interval '1 minute'
FROM generate_series(1, $2::int) n
"""
ALLOCATIONS = """
INSERT INTO allocations (kernel_id, agent_id, slot, device_id, amount)
SELECT md5('k' || $1 || n)::uuid, 'node', slot, '', 1000
FROM generate_series(1, $2::int) n CROSS JOIN (VALUES ('cpu'), ('mem')) s(slot)
"""
END = "UPDATE kernels SET status = 'TERMINATED', status_since = now() WHERE id = ANY ($1::uuid[])"


async def load(store: Store, options: argparse.Namespace) -> float:
    """CPU seconds of this process for each second of the load."""
    sequence = 0
    spent = 0.0
    now_ms = round(time.time() * 1000)
    callers = [
        Scope.system("t", Owner(f"u{n % 500}", f"p{n % 100}")) for n in range(options.sessions)
    ]
    for second in range(options.seconds):
        records = tuple(
            UsageRecord(
                sequence + n,
                now_ms,
                ended_ms=now_ms,
                project=f"p{n % 100}",
                user=f"u{n % 500}",
                key_id=f"k{n}",
                model="m",
                requests=2,
                tokens_in=9,
                tokens_out=9,
                tokens_cached=0,
            )
            for n in range(1, options.records + 1)
        )
        sequence += options.records
        began = time.process_time()
        await store.usage_records.put("proxy", [UsageBatch("e", records)])
        for caller in callers:
            await store.budgets.check(caller, WORK)

        if second % 10 == 0:
            term = await store.leases.acquire("bench", 60)
            await store.budgets.measure(term or 0)

        spent += time.process_time() - began

    return spent / options.seconds


async def scrape(store: Store) -> tuple[float, float, int]:
    """Wall and CPU seconds for the ledger's metrics, and their total size."""
    scrape = Scrape(store, ManagerMetrics(), CLOCK)
    began = time.perf_counter()
    spent = time.process_time()
    page = await scrape.render()
    return time.perf_counter() - began, time.process_time() - spent, len(page)


async def end_kernels(connection: asyncpg.Connection, name: str, count: int) -> float:
    """Wall seconds of one transaction that ends this many kernels."""
    for statement in (SESSIONS, KERNELS, ALLOCATIONS):
        await connection.execute(statement, name, count)
    rows = await connection.fetch("SELECT id FROM kernels WHERE status = 'RUNNING'")
    began = time.perf_counter()
    await connection.execute(END, [row["id"] for row in rows])
    return time.perf_counter() - began


async def main(options: argparse.Namespace) -> None:
    print(machine_line(machine()))
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        Path(folder).chmod(0o711)
        postgres = EmbeddedPostgres(Path(folder) / "postgres", bin_dir=None, port=None, clock=CLOCK)
        async with postgres:
            await migrate(postgres.dsn)
            async with Store(postgres.dsn, CLOCK) as store:
                kernels = options.sessions * options.history
                await store.database.fetch(FILL, kernels, options.history, options.projects)
                await store.database.fetch(PROJECTS, options.budgets)
                for n in range(options.budgets):
                    spec = BudgetSpec(hard=(1 << 50))
                    await store.budgets.put(
                        SYSTEM, "project", f"p{n}", "tokens", period="month", spec=spec
                    )

                spent = await load(store, options)
                began = time.perf_counter()
                term = await store.leases.acquire("bench", 60)
                await store.budgets.measure(term or 0)
                measured = time.perf_counter() - began
                scraped = await scrape(store)

            connection = await asyncpg.connect(postgres.dsn)
            await connection.execute(AGENT)
            await connection.execute(SLOTS)
            charged = [await end_kernels(connection, f"a{n}-", BATCH) for n in range(5)]
            await connection.execute("ALTER TABLE kernels DISABLE TRIGGER kernels_charge")
            plain = [await end_kernels(connection, f"b{n}-", BATCH) for n in range(5)]
            await connection.close()

    print(
        f"{options.sessions} sessions and {options.records} records a second, {options.budgets} budgets,"
    )
    print(f"  a ledger of {3 * kernels} records")
    print(f"manager: {100 * spent:.2f} % of a core")
    print(
        f"metrics of {options.projects} projects: {1000 * scraped[0]:.0f} ms, {1000 * scraped[1]:.0f} of CPU,"
    )
    print(f"  at most every {max(LEDGER_AGE_S, scraped[0] / COST):.0f} s; {scraped[2]} bytes")
    print(f"all budgets summed up in {1000 * measured:.0f} ms of Postgres")
    each = (min(charged) - min(plain)) / BATCH
    print(
        f"Postgres: {1e6 * min(charged) / BATCH:.0f} us for each kernel that ends, {1e6 * each:.0f} of it"
    )
    print("  for its records")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--sessions", type=int, default=100, help="sessions a second")
    parser.add_argument("--records", type=int, default=400, help="usage records a second")
    parser.add_argument("--budgets", type=int, default=100)
    parser.add_argument("--projects", type=int, default=100)
    parser.add_argument(
        "--history", type=int, default=600, help="seconds of sessions in the ledger"
    )
    sys.exit(asyncio.run(main(parser.parse_args())))
