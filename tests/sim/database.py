"""Postgres in virtual time, with faults between any two statements.

One real connection per simulation. ``now()`` is the virtual clock: a schema ``sim`` before ``pg_catalog`` in
the search path has a function of that name, so statements and column defaults are the shipped ones.
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
from moorage.manager.store.database import Database, DedicatedConnection, prepare_connection

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# Faults at one statement of an operation: before it, or after it took effect and before its result arrived.
CRASH_BEFORE, CRASH_AFTER, DISCONNECT_BEFORE, DISCONNECT_AFTER, PAUSE_BEFORE, PAUSE_AFTER = range(6)
CRASH, DISCONNECT = (CRASH_BEFORE, CRASH_AFTER), (DISCONNECT_BEFORE, DISCONNECT_AFTER)
PAUSE = (PAUSE_BEFORE, PAUSE_AFTER)
FAULT_NAMES = (
    "crashes before", "crashes after", "disconnected before", "disconnected after", "paused before",
    "paused after",
)  # fmt: skip


class ManagerCrashed(Exception):
    """The manager process is gone: none of its operations continues."""


class Operation:
    """One operation of a manager, such as a loop's run. ``fault`` happens at statement ``at``. A paused
    operation waits for ``resume`` (SIGSTOP, a long garbage collection) and continues with what it had
    read."""

    def __init__(self, label: str, fault: int | None = None, at: int = 0) -> None:
        self.label, self.fault, self.at, self.count = label, fault, at, 0
        self.task: asyncio.Task[Any] | None = None
        self.paused, self.resume = asyncio.Event(), asyncio.Event()

    async def pause(self) -> None:
        if asyncio.current_task() is self.task:  # a shared batch writer is never paused alone
            self.paused.set()
            await self.resume.wait()


CURRENT: ContextVar[Operation | None] = ContextVar("operation", default=None)


class Postgres:
    """The connection and the virtual clock, in seconds since ``EPOCH``."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection, self.time, self._time_set = connection, 0.0, -1.0
        self._lock = asyncio.Lock()

    @classmethod
    async def prepare(cls, dsn: str) -> Postgres:
        """Migrate an empty database, and put it into virtual time."""
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
        await prepare_connection(connection)
        return cls(connection)

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._lock:
            if self._time_set != self.time:
                now = EPOCH + timedelta(seconds=self.time)
                await self._connection.execute(f"SET \"sim.now\" = '{now.isoformat()}'")
                self._time_set = self.time
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
        self.time, self._time_set = 0.0, -1.0

    async def close(self) -> None:
        await self._connection.close()


class SimulatedConnection(DedicatedConnection):
    def __init__(self, database: SimulatedDatabase) -> None:
        self._database = database

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return await self._database.fetch(sql, *args)

    async def close(self) -> None:
        pass


class SimulatedDatabase(Database):
    """The connections of one manager process."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__("postgresql://nobody@nowhere/nothing")
        self._postgres, self.crashed = postgres, False

    def dedicated_connection(self, *, durable: bool = True) -> DedicatedConnection:
        return SimulatedConnection(self)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        operation = CURRENT.get()
        faulty = operation is not None and operation.fault is not None and operation.count == operation.at
        if operation is not None:
            operation.count += 1
        if faulty:
            assert operation is not None
            await self._inject(
                operation, {CRASH_BEFORE: CRASH, DISCONNECT_BEFORE: DISCONNECT, PAUSE_BEFORE: PAUSE}
            )
        if self.crashed:
            raise ManagerCrashed
        rows = await self._postgres.fetch(sql, *args)
        if faulty:
            assert operation is not None
            await self._inject(
                operation, {CRASH_AFTER: CRASH, DISCONNECT_AFTER: DISCONNECT, PAUSE_AFTER: PAUSE}
            )
        if self.crashed:
            raise ManagerCrashed
        return rows

    async def _inject(self, operation: Operation, faults: dict[int, tuple[int, int]]) -> None:
        kind = faults.get(operation.fault if operation.fault is not None else -1)
        if kind is CRASH:
            self.crashed = True
            raise ManagerCrashed
        if kind is DISCONNECT:
            raise StoreUnavailable
        if kind is PAUSE:
            await operation.pause()


def draw_fault(rng: random.Random) -> tuple[int | None, int]:
    """Fault and statement number; no fault for most operations."""
    kind = rng.choices([None, CRASH, DISCONNECT, PAUSE], [74, 6, 5, 15])[0]
    return (None, 0) if kind is None else (rng.choice(kind), rng.choice([0, 0, 1, 1, 1, 2, 3, 4]))
