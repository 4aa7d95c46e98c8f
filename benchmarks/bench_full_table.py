"""Cost of reading live sessions in a table with many ended ones.

    python benchmarks/bench_full_table.py [--finished 100000]

Times the reads of a scheduling pass, of the session controller and of the route feed, and three
listings, with a hundred live sessions, first in a table without others, then with many ended
sessions. Prints the medians with their ratio, and the query plans with the full table, which are
also written next to the JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg

from measuring import machine, machine_line, median
from moorage.common.aio.clock import SystemClock
from moorage.common.model.paging import Paging
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE
from moorage.manager.identity.scope import Scope
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.store import Store, migrate
from moorage.manager.store.database.queries import SQL

SYSTEM = Scope.system()

HERE = Path(__file__).parent
# It examines a bounded number of ended sessions (store/database/search.py).
SEARCH = "listing: by a part of a name"
NO_ID = "00000000-0000-0000-0000-000000000000"
LIVE_SESSIONS = 100
TIMES = 30
PLANNED: dict[str, tuple[Any, ...]] = {
    "groups_pending": (),
    "pending_versions": ("default", datetime.min.replace(tzinfo=UTC), NO_ID, 500),
    "sessions_to_reconcile": (True, 45.0),
    "model_routes": ([], ["live-1"]),
}
LISTING = (
    "SELECT * FROM sessions WHERE status IN ('PENDING', 'RUNNING') AND sessions.status NOT IN ('TERMINATED', "
    "'CANCELLED', 'ERROR') ORDER BY created_at DESC, id DESC LIMIT 51"
)
FINISHED = """
WITH created AS (
    INSERT INTO sessions (id, name, type, status, result, resource_group, priority, spec, slots, created_by,
                          owner, created_at, status_since, revision)
    SELECT gen_random_uuid(), 'old-' || n, 'batch', 'TERMINATED', 'SUCCESS', 'default', 10, $2::jsonb,
           '{"cpu": 1000}', 'bench', 'bench', now() - n * interval '1 s', now() - n * interval '1 s', 4
    FROM generate_series(1, $1) AS n RETURNING id
), kernels_added AS (
    INSERT INTO kernels (id, session_id, attempt, status, status_since, agent_id, secret)
    SELECT gen_random_uuid(), id, 1, 'TERMINATED', now() - interval '1 day', 'old', 's' FROM created
)
INSERT INTO session_history (session_id, revision, event, to_status, actor)
SELECT id, r, 'moved', 'TERMINATED', 'bench' FROM created, generate_series(1, 4) AS r
"""


async def times(store: Store) -> dict[str, float]:
    """The median duration of each read in milliseconds."""
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "scheduling pass: groups, sessions, agents": lambda: _pass(store),
        "session controller: what has changed": lambda: store.lifecycle.to_reconcile(changed_s=10),
        "session controller: sweep of 500": lambda: store.lifecycle.sweep(None, 500),
        "routes": store.routes.table,
        "listing: newest 50": lambda: store.sessions.page(SYSTEM, paging=Paging(50)),
        "listing: live sessions": lambda: store.sessions.page(
            SYSTEM, statuses=frozenset(LIVE), paging=Paging(50)
        ),
        "listing: by name": lambda: store.sessions.page(SYSTEM, name="live-7", paging=Paging(50)),
        SEARCH: lambda: store.sessions.page(SYSTEM, search="ive-7", paging=Paging(50)),
    }
    found = {}
    for name, read in reads.items():
        seconds = []
        for _ in range(TIMES):
            start = time.perf_counter()
            await read()
            seconds.append(time.perf_counter() - start)

        found[name] = 1000 * median(seconds)

    return found


async def _pass(store: Store) -> None:
    # As happens once per second; a pass in between reads only sessions that were announced as
    # changed.
    store.scheduling.invalidate_caches()
    for group, policy in await store.groups.with_pending():
        await store.scheduling.snapshot(group, policy)


async def measure(finished: int) -> tuple[dict[str, Any], str]:
    home = Path(tempfile.mkdtemp(prefix="moorage-bench-"))
    home.chmod(0o711)
    try:
        async with EmbeddedPostgres(home / "pg", clock=SystemClock()) as postgres:
            await migrate(postgres.dsn)
            plain = await asyncpg.connect(postgres.dsn)
            await plain.execute(
                "INSERT INTO agents (id, resource_group, status, incarnation, address, version, arch, "
                "runtimes, engines) VALUES ('old', 'default', 'LOST', 'x', '', '', '', '{}', '{}')"
            )

            async with Store(postgres.dsn, SystemClock()) as store:
                for n in range(LIVE_SESSIONS):
                    await store.sessions.create(
                        Scope.system("bench"), SessionSpec(name=f"live-{n}", command=["x"])
                    )

                empty = await times(store)
                await plain.execute(
                    FINISHED, finished, SessionSpec(command=["x"]).model_dump_json(), timeout=300
                )
                await plain.execute("ANALYZE")
                full = await times(store)

            await plain.execute(
                "SET enable_seqscan = off; SET random_page_cost = 1.1"
            )  # as on the store's connections
            plans = []
            for name, args in PLANNED.items():
                plans += [f"-- {name}", *await _plan(plain, SQL[name], args), ""]

            plans += ["-- listing: live sessions", *await _plan(plain, LISTING, ())]
            await plain.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)

    return {"empty_ms": empty, "full_ms": full}, "\n".join(plans)


async def _plan(connection: asyncpg.Connection, sql: str, args: tuple[Any, ...]) -> list[str]:
    rows = await connection.fetch(
        f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY ON) {sql}", *args
    )
    return [row[0] for row in rows]


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time reads of live sessions beside many ended ones."
    )
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "full_table.json")
    parser.add_argument(
        "--check", action="store_true", help="fail if a read takes three times as long"
    )
    options = parser.parse_args()
    about = machine()
    found, plans = await measure(options.finished)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"machine": about, "finished": options.finished} | found, indent=1)
    )
    options.json.with_suffix(".plans.txt").write_text(plans + "\n")
    print(f"| read | ms, {LIVE_SESSIONS} live | ms, with {options.finished} ended | ratio |")
    print("|---|---:|---:|---:|")
    for name, before in found["empty_ms"].items():
        after = found["full_ms"][name]
        print(f"| {name} | {before:.2f} | {after:.2f} | {after / before:.2f} |")

    print(f"\n{plans}\n\n{machine_line(about)}")
    slow = [
        n for n, ms in found["empty_ms"].items() if found["full_ms"][n] > 3 * ms + 1 and n != SEARCH
    ]
    if options.check and slow:
        sys.exit(f"slowed down by ended sessions: {', '.join(slow)}")


if __name__ == "__main__":
    asyncio.run(main())
