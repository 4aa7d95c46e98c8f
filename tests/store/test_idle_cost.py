"""The cost of an idle leader: in an installation ten times as large, its loops read the same number
of rows from Postgres."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from moorage.manager.loops import (
    autoscaler,
    integrity_checks,
    leader,
    replica_controller,
    session_controller,
)
from moorage.manager.store.database import connections as database
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.endpoints import routes
from moorage.manager.store.scheduling import agent_cache, expected_starts, held_slots, pending_cache
from scale_loops import Loops
from scale_worlds import World
from tests.conftest import execute

# integrity checks start after a minute
WARM_UP_S = 62.0
IDLE_S = 30.0
GOAL = 1.5
# Rows by which a statement may exceed the goal, and one more for each execution: to plan a range
# with its parameters, the planner looks up the end of an index.
CONSTANT = 20
# The reads of a transaction, by table. Index-only scans read no rows from vacuumed pages.
READ = (
    "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint FROM "
    "pg_stat_xact_user_tables"
)
NAMES = {text: name for name, text in SQL.items()}


class Reads:
    """Rows read, and statements, by loop and statement."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.statements: Counter[str] = Counter()
        self.loop = ""

    @contextmanager
    def step(self, name: str, *, of_s: float | None = None) -> Iterator[None]:
        self.loop = name
        yield
        self.loop = ""

    async def fetch(self, connection: Any, sql: str, *args: Any) -> list[Any]:
        loop = self.loop
        async with connection.transaction():
            before = await connection.fetchval(READ)
            found: list[Any] = await connection.fetch(sql, *args)
            rows = await connection.fetchval(READ) - before
        if loop and sql in NAMES:
            self.rows[f"{loop}: {NAMES[sql]}"] += rows
            self.statements[f"{loop}: {NAMES[sql]}"] += 1
        return found


# The small size fills the chunks of the sweeps.
CHUNKS = [
    (session_controller, "SWEPT", 20),
    (replica_controller, "SWEPT", 2),
    (autoscaler, "SWEPT", 2),
    (autoscaler, "LOOK_S", 1.0),
    (held_slots, "SWEPT", 20),
    (pending_cache, "COMPARED", 20),
    (agent_cache, "REREAD_PER_S", 0.5),
    (routes, "SWEPT", 2),
    (expected_starts, "BATCH", 5),
    (integrity_checks, "FIRST", 1),
    (integrity_checks, "LEAST", 1),
    (integrity_checks, "MOST", 1),
    # The number of parts is the same no matter how long the statements take, and there is no
    # election.
    (integrity_checks, "SHARE", 1.0),
    (leader, "LEASE_S", 600.0),
]
# Linear in the number of agents, like heartbeats: an index on the time of the last heartbeat would
# make heartbeats more expensive. An occupancy sample adds up all slots and live sessions, twice a
# minute, and samples of the load have a row for each endpoint and node. Whether 30 seconds contain
# one sample or none depends on the moment when the loop started.
LINEAR = {
    "agents: idle: agent_contacts",
    "gc: idle: occupancy_record",
    "gc: idle: endpoint_load_record",
    "gc: idle: agent_load_record",
}
CASES = {
    "sessions": lambda n: World(agents=20 * n, running=100 * n),
    "endpoints": lambda n: World(agents=20 * n, endpoints=5 * n),
    "pending": lambda n: World(agents=20, running=100, pending=100 * n, full=True),
    # The planner knows of no live session, as when the tables were analyzed in a quiet night.
    "ended": lambda n: World(agents=20, ended=3000 * n, pending=100, full=True),
    "quotas": lambda n: World(agents=20 * n, running=100 * n, pending=20, quotas=True),
}


@pytest.fixture(autouse=True)
def few_connections() -> None:
    """Each kind of statement has its own connection here. A shared connection would have more
    statements than asyncpg caches, so they would be planned again while they are measured, and the
    planner also reads rows."""


async def idle(dsn: str, world: World, monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads = Reads()
    async with Loops(dsn, world, vacuum=False) as loops:
        await loops.idle(reads, WARM_UP_S)
        reads = Reads()
        with monkeypatch.context() as patched:
            patched.setattr(database, "fetch_writable", reads.fetch)
            await loops.idle(reads, IDLE_S)
    return reads


@pytest.mark.parametrize("case", CASES)
async def test_idle_loops_read_the_same_at_ten_times_the_size(
    case: str, migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, size in CHUNKS:
        monkeypatch.setattr(module, name, size)

    small = await idle(migrated_database, CASES[case](1), monkeypatch)
    await execute(
        migrated_database,
        "TRUNCATE agents, sessions, endpoints, quotas, leases, managers, proxy_reports CASCADE",
    )
    large = await idle(migrated_database, CASES[case](10), monkeypatch)
    assert small.statements.total() > 100, "the loops did not run"
    grown = {
        name: (small.rows[name], rows)
        for name, rows in large.rows.items()
        if rows > GOAL * small.rows[name] + CONSTANT + large.statements[name] and name not in LINEAR
    }
    assert not grown, f"rows read in {IDLE_S:.0f} s, by size: {grown}"
    more = {
        name: (small.statements[name], count)
        for name, count in large.statements.items()
        if count > GOAL * small.statements[name] + 5
    }
    assert not more, f"statements in {IDLE_S:.0f} s, by size: {more}"
