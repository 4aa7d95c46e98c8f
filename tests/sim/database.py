"""Postgres in virtual time, with faults between any two statements.

One real connection per world. ``now()`` is the world's clock: a schema ``sim`` before ``pg_catalog`` in the
search path holds a function of that name, so the statements and the column defaults are the shipped ones.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import migrate
from moorage.manager.store.database import Database, Line, _init

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# Faults at one statement of one operation: before it, or after it took effect and before its answer came.
DIE_BEFORE, DIE_AFTER, CUT_BEFORE, CUT_AFTER, PARK_BEFORE, PARK_AFTER = range(6)
DIE, CUT, PARK = (DIE_BEFORE, DIE_AFTER), (CUT_BEFORE, CUT_AFTER), (PARK_BEFORE, PARK_AFTER)


class Died(Exception):
    """The manager process is no more: nothing of it runs on."""


class Operation:
    """One thing that a manager does. ``fault`` strikes at statement ``at``; a parked one waits for
    ``resume``: the manager was stopped there (SIGSTOP, a long pause), and goes on later with what it knew."""

    def __init__(self, label: str, fault: int | None = None, at: int = 0) -> None:
        self.label, self.fault, self.at, self.count = label, fault, at, 0
        self.task: asyncio.Task[Any] | None = None
        self.parked, self.resume = asyncio.Event(), asyncio.Event()

    async def park(self) -> None:
        if asyncio.current_task() is self.task:  # a shared writer is never stopped alone
            self.parked.set()
            await self.resume.wait()


CURRENT: ContextVar[Operation | None] = ContextVar("operation", default=None)


class Postgres:
    """The connection and the virtual clock, in seconds since ``EPOCH``."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection, self.time, self._told = connection, 0.0, -1.0
        self._lock = asyncio.Lock()

    @classmethod
    async def prepare(cls, dsn: str) -> Postgres:
        """Migrate an empty database into virtual time."""
        connection = await asyncpg.connect(dsn)
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"""
            CREATE SCHEMA sim;
            CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql STABLE
                AS $$ SELECT pg_catalog.current_setting('sim.now')::timestamptz $$;
            ALTER DATABASE {name} SET search_path = sim, public, pg_catalog;
            ALTER DATABASE {name} SET "sim.now" = '{EPOCH.isoformat()}';
        """)
        await connection.close()
        await migrate(dsn)
        connection = await asyncpg.connect(dsn)
        await _init(connection)
        return cls(connection)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._lock:
            if self._told != self.time:
                now = EPOCH + timedelta(seconds=self.time)
                await self._connection.execute(f"SET \"sim.now\" = '{now.isoformat()}'")
                self._told = self.time
            rows: list[Any] = await self._connection.fetch(sql, *args)
            return rows

    async def clear(self, *, truncate: bool) -> None:
        tables = (
            "session_dependencies, session_history, allocations, kernels, sessions, endpoints, agent_slots, "
            "agents, leases"
        )
        if truncate:
            await self._connection.execute(f"TRUNCATE {tables} CASCADE")
        else:
            for table in tables.split(", "):
                await self._connection.execute(f"DELETE FROM {table}")
        await self._connection.execute("UPDATE resource_groups SET options = '{}', cursors = '{}'")
        await self._connection.execute("ALTER SEQUENCE generations RESTART")
        self.time, self._told = 0.0, -1.0

    async def close(self) -> None:
        await self._connection.close()


class WorldLine(Line):
    def __init__(self, database: WorldDatabase) -> None:
        self._database = database

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return await self._database.fetch(sql, *args)

    async def close(self) -> None:
        pass


class WorldDatabase(Database):
    """The connections of one manager's life."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__("postgresql://nobody@nowhere/nothing")
        self._postgres, self.dead = postgres, False

    def line(self, *, durable: bool = True) -> Line:
        return WorldLine(self)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        operation = CURRENT.get()
        strikes = operation is not None and operation.fault is not None and operation.count == operation.at
        if operation is not None:
            operation.count += 1
        if strikes:
            assert operation is not None
            await self._strike(operation, {DIE_BEFORE: DIE, CUT_BEFORE: CUT, PARK_BEFORE: PARK})
        if self.dead:
            raise Died
        rows = await self._postgres.fetch(sql, *args)
        if strikes:
            assert operation is not None
            await self._strike(operation, {DIE_AFTER: DIE, CUT_AFTER: CUT, PARK_AFTER: PARK})
        if self.dead:
            raise Died
        return rows

    async def _strike(self, operation: Operation, here: dict[int, tuple[int, int]]) -> None:
        kind = here.get(operation.fault if operation.fault is not None else -1)
        if kind is DIE:
            self.dead = True
            raise Died
        if kind is CUT:
            raise StoreUnavailable
        if kind is PARK:
            await operation.park()


def draw_fault(rng: random.Random) -> tuple[int | None, int]:
    """Most operations meet no fault."""
    kind = rng.choices([None, DIE, CUT, PARK], [74, 6, 5, 15])[0]
    return (None, 0) if kind is None else (rng.choice(kind), rng.choice([0, 0, 1, 1, 1, 2, 3, 4]))
