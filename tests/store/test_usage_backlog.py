"""The usage backlog while Postgres accepts no writes: nothing that was accepted is lost, and it is
bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg

from moorage.common.model.ids import AgentId, KernelId
from moorage.common.model.resource_usage import (
    EngineUse,
    KernelMinute,
    KernelProgress,
    UsageReport,
    Use,
)
from moorage.manager.loops import UsageWriter
from moorage.manager.loops.usage_writer import WAITING
from moorage.manager.metrics import ManagerMetrics
from moorage.manager.store import Store
from tests.clocks import StoreClock

from .conftest import FakeAgent
from .test_ledger import SYSTEM, run

USE = Use(500, 1 << 30)
A_MINUTE = 60


@asynccontextmanager
async def no_writes(dsn: str) -> AsyncIterator[None]:
    admin = await asyncpg.connect(dsn, server_settings={"default_transaction_read_only": "off"})
    name = await admin.fetchval("SELECT quote_ident(current_database())")
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await admin.execute(end)
    yield
    await admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await admin.execute(end)
    await admin.close()


def report(*kernels: str, number: int = 0, fraction: float = 0.0, minutes: int = 0) -> UsageReport:
    """A report of engines, progress and minutes of these kernels."""
    ids = [KernelId(one) for one in kernels]
    last = int(datetime.now(UTC).timestamp()) // A_MINUTE * A_MINUTE
    return UsageReport(
        AgentId("node-1"),
        "incarnation-1",
        0,
        0,
        engines=tuple(EngineUse(one, number, 0, None) for one in ids),
        progress=tuple(KernelProgress(one, fraction) for one in ids),
        minutes=tuple(
            KernelMinute(one, last - A_MINUTE * n, samples=12, mean=USE, peak=USE)
            for one in ids
            for n in range(1, minutes + 1)
        ),
    )


def others(begin: int, count: int) -> list[str]:
    return [f"00000000-0000-0000-0000-{n:012}" for n in range(begin, begin + count)]


async def flushed(writer: UsageWriter) -> None:
    """Each store notices on its own that its connection was closed."""
    for _ in range(6):
        await writer.run_once()


async def test_what_was_taken_is_written_after_the_outage(
    store: Store, migrated_database: str
) -> None:
    agent = FakeAgent(store)
    kernel = await run(store, agent)
    writer = UsageWriter(store, ManagerMetrics(), StoreClock())
    async with no_writes(migrated_database):
        assert writer.take(report(kernel, number=1, fraction=0.25, minutes=2))
        await writer.run_once()
        assert writer.take(report(kernel, number=2, fraction=0.5))
        await writer.run_once()

    await flushed(writer)
    [spans] = await store.database.fetch("SELECT count(*) AS n FROM kernel_usage_spans")
    assert spans["n"] == 2, "minutes are sent once"
    [load] = await store.database.fetch("SELECT running FROM engine_loads")
    assert load["running"] == 2
    view = await store.sessions.get(SYSTEM, "s")
    assert view.kernels[0].progress is not None
    assert view.kernels[0].progress.fraction == 0.5, "the newest"


async def test_backlog_has_a_bound(store: Store, migrated_database: str) -> None:
    writer = UsageWriter(store, ManagerMetrics(), StoreClock())
    async with no_writes(migrated_database):
        taken = 0
        while writer.take(report(*others(taken, 1000))):
            taken += 1000
            assert writer.is_full == (taken > WAITING // 2), "agents are told well before"
            assert taken <= WAITING
            await writer.run_once()

        assert taken == WAITING
        assert writer.take(report(*others(0, 1000), number=7)), (
            "of kernels that wait, the newest is kept"
        )
        assert not writer.take(report(*others(taken, 1), minutes=1)), "all of a report, or nothing"
        assert writer.take(report(*others(0, 20), minutes=1000))
        assert not writer.take(report(*others(0, 1), minutes=1))

    await flushed(writer)
    assert not writer.is_full
    assert writer.take(report(*others(taken, 1), minutes=1))
