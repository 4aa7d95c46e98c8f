"""Lineage of the database: a promoted standby is prepared once, and a former primary is refused."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from moorage.manager.store import Store
from moorage.manager.store.database.connector import DatabaseConnector, each_host
from moorage.manager.store.database.lineage import FormerPrimary, LineageGuard

from .conftest import FakeAgent, open_store

STORED = "SELECT system, timeline, failovers FROM lineage"


async def stored(dsn: str) -> tuple[str, int, int]:
    connection = await asyncpg.connect(dsn)
    try:
        return tuple(await connection.fetchrow(STORED))
    finally:
        await connection.close()


async def connect(dsn: str, guard: LineageGuard, times: int = 1) -> None:
    for _ in range(times):
        await (await DatabaseConnector(dsn, guard=guard).connect({})).close()


async def change(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(sql)
    await connection.close()


async def test_the_first_connection_records_where_the_database_is(
    migrated_database: str, tmp_path: Path
) -> None:
    file = tmp_path / "lineage"
    await connect(migrated_database, LineageGuard(file), 2)
    system, timeline, failovers = await stored(migrated_database)
    assert json.loads(file.read_text()) == {"system": system, "timeline": timeline}
    assert (timeline, failovers) == (1, 0)


async def test_after_a_failover_agents_report_before_anything_is_placed(
    store: Store, migrated_database: str
) -> None:
    """Another manager had been connected to the former primary, whose cluster or timeline is
    stored."""
    agent = FakeAgent(store, stream=1)
    seen = []
    guard = LineageGuard()
    guard.on_failover.append(lambda: seen.append("told"))
    await connect(migrated_database, guard)
    await agent.report()
    assert (await store.agents.get("node-1")).ready
    term = await store.leases.acquire("one", 60)
    generation = await store.orders.next_generation()
    await change(migrated_database, "UPDATE lineage SET system = 'another cluster'")
    other = LineageGuard()
    await connect(migrated_database, other, 3)
    assert (await stored(migrated_database))[2] == 1, "prepared once"
    assert (await store.agents.get("node-1")).restored_at is not None
    assert await store.leases.renew("one", term or 0, 60) is None, "the term has ended"
    assert await store.orders.next_generation() > generation
    assert seen == [], "for this guard it is the same server"
    agent.reconnect(store)
    await agent.report()
    assert (await store.agents.get("node-1")).ready


async def test_who_used_the_former_primary_is_told(migrated_database: str, tmp_path: Path) -> None:
    await connect(migrated_database, LineageGuard())
    system, _, _ = await stored(migrated_database)
    file = tmp_path / "lineage"
    told = []
    file.write_text(json.dumps({"system": system + "0", "timeline": 1}))
    guard = LineageGuard(file)
    guard.on_failover.append(lambda: told.append("told"))
    await connect(migrated_database, guard, 2)
    assert told == ["told"]


async def test_a_former_primary_is_refused_over_restarts(
    migrated_database: str, tmp_path: Path
) -> None:
    await connect(migrated_database, LineageGuard())
    system, _, _ = await stored(migrated_database)
    file = tmp_path / "lineage"
    file.write_text(json.dumps({"system": system, "timeline": 5}))
    with pytest.raises(FormerPrimary, match="timeline 1, and a standby was promoted to timeline 5"):
        await connect(migrated_database, LineageGuard(file))


async def test_an_unreadable_file_counts_as_none(migrated_database: str, tmp_path: Path) -> None:
    file = tmp_path / "lineage"
    file.write_text("{")
    await connect(migrated_database, LineageGuard(file))
    assert json.loads(file.read_text())["timeline"] == 1


async def test_commits_wait_as_the_setting_says(migrated_database: str) -> None:
    """Statements that need not be durable keep their own setting."""
    connector = DatabaseConnector(migrated_database, synchronous_commit="remote_apply")
    async with open_store(migrated_database, connector=connector) as store:
        for durable, expected in ((True, "remote_apply"), (False, "off")):
            dedicated = store.database.dedicated_connection(durable=durable)
            assert (await dedicated.fetch("SHOW synchronous_commit"))[0][0] == expected
        assert (await store.database.fetch("SHOW synchronous_commit"))[0][0] == "remote_apply"


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql://u:p@one:1/d", ["postgresql://u:p@one:1/d"]),
        (
            "postgresql://u:p@one:1,two/d?x=1",
            ["postgresql://u:p@one:1/d?x=1", "postgresql://u:p@two/d?x=1"],
        ),
        ("postgresql://one,[::1]:2/d", ["postgresql://one/d", "postgresql://[::1]:2/d"]),
        ("postgresql:///d?host=one", ["postgresql:///d?host=one"]),
    ],
)
def test_hosts_of_a_url(dsn: str, expected: list[str]) -> None:
    assert each_host(dsn) == expected
