"""Postgres in virtual time, with faults between any two statements.

``now()`` is the virtual clock: the schema ``sim``, which precedes ``pg_catalog`` in the search
path, has a function of that name, so that statements and column defaults can stay as shipped.
Statements run one after the other over one connection. A transaction can be kept open while other
managers use a second one: a statement that waits for one of its locks makes it commit, and Postgres
then evaluates that statement again, as READ COMMITTED requires. A third connection observes the
waits and the commits.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import asyncpg

from moorage.common.model.errors import StoreUnavailable
from moorage.manager.store import migrate
from moorage.manager.store.database.connections import (
    Database,
    DedicatedConnection,
    prepare_connection,
)
from moorage.manager.store.database.queries import SQL

from .records import RECORDED, TRIGGERS

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
# Settings for each connection. A copy of a database does not have the settings of its template.
SETTINGS = {"search_path": "sim, public, pg_catalog", "sim.now": EPOCH.isoformat()}
# Faults in one statement of an operation: before it, or after it took effect but before its result
# arrived.
CRASH_BEFORE, CRASH_AFTER, DISCONNECT_BEFORE, DISCONNECT_AFTER, PAUSE_BEFORE, PAUSE_AFTER = range(6)
CRASH = (CRASH_BEFORE, CRASH_AFTER)
DISCONNECT = (DISCONNECT_BEFORE, DISCONNECT_AFTER)
PAUSE = (PAUSE_BEFORE, PAUSE_AFTER)
FAULT_NAMES = (
    "crashes before", "crashes after", "disconnected before", "disconnected after", "paused before",
    "paused after",
)  # fmt: skip


# Statements that run under a leader's term, each with the position of its term parameter, or of the
# parameter that has one term for each row.
_TERMS = {
    "session_transition": 18,
    "agents_mark_silent": 4,
    "session_place": 0,
    "kernel_leases_expire": 3,
}


# Ordered so that rows can be deleted.
TABLES = (
    "secrets", "deliveries", "event_outbox", "subscriptions", "cron_runs", "cron_jobs", "idempotency_keys",
    "pipeline_steps", "pipelines", "templates", "session_dependencies", "session_history", "allocations",
    "replaced_kernels", "kernels", "sessions", "endpoints", "agent_slots", "agents", "leases", "managers",
    "quotas", "ledger",
)  # fmt: skip
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|nextval|setval)\b")
LOCK_POLL_S = 0.002


@lru_cache(maxsize=1000)
def _writes(sql: str) -> bool:
    return _WRITES.search(sql) is not None


class ManagerCrashed(Exception):
    """The manager process is gone: none of its operations continues."""


class Operation:
    """One manager operation, such as a run of a loop. ``fault`` occurs in statement number ``at``.
    A paused operation waits for ``resume`` (SIGSTOP, a long garbage collection) and continues with
    the data that it had read. ``meanwhile``: the actions of other managers while the transaction of
    writing statement ``open_at`` is open (0 means the first)."""

    def __init__(self, label: str, fault: int | None = None, at: int = 0) -> None:
        self.label = label
        self.fault = fault
        self.at = at
        self.count = 0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.open_at = 0
        self.task: asyncio.Task[Any] | None = None
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()

    async def pause(self) -> None:
        if asyncio.current_task() is self.task:  # a shared batch writer is never paused alone
            self.paused.set()
            await self.resume.wait()


CURRENT: ContextVar[Operation | None] = ContextVar("operation", default=None)


@dataclass
class OpenTransaction:
    """A transaction whose statement has run. ``owner``: the manager to which the waiting
    connections belong."""

    owner: SimulatedDatabase
    statement: str
    terms: frozenset[int]
    committed: bool = False


class Postgres:
    """The connections and the virtual time, in seconds since ``EPOCH``. The database's clock is
    ``offset`` seconds ahead of it. ``lock_waits``: how many statements have waited for an open
    transaction."""

    def __init__(
        self,
        connection: asyncpg.Connection,
        second: asyncpg.Connection,
        observer: asyncpg.Connection,
    ) -> None:
        self._connection = connection
        self._second = second
        self._observer = observer
        self.time = 0.0
        self.offset = 0.0
        self._times: dict[asyncpg.Connection, tuple[float, float]] = {}
        self._lock = asyncio.Lock()
        self._second_lock = asyncio.Lock()
        self._open: OpenTransaction | None = None
        self.transactions_kept_open = 0
        self.lock_waits = 0
        self.former_leaders: list[str] = []  # rows written by former leaders

        # statements whose commit has not reached the disk
        self._tail = 0
        self.crashes = 0

    @staticmethod
    async def prepare(dsn: str) -> None:
        """Migrate an empty database and move it into virtual time, as a template for the databases
        that ``connect`` uses."""
        connection = await asyncpg.connect(dsn)
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"""
            CREATE SCHEMA sim;
            CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql STABLE
                AS $$ SELECT pg_catalog.current_setting('sim.now')::timestamptz $$;
            ALTER DATABASE {name} SET search_path = {SETTINGS["search_path"]};
            ALTER DATABASE {name} SET "sim.now" = '{SETTINGS["sim.now"]}';
        """)
        await connection.close()
        await migrate(dsn)
        connection = await asyncpg.connect(dsn)
        await connection.execute(TRIGGERS)
        await connection.close()

    @classmethod
    async def connect(cls, dsn: str) -> Postgres:
        """``dsn``: the connection string of a copy of the database that ``prepare`` has made."""
        # Each statement of a simulation is prepared and planned once.
        connections = [
            await asyncpg.connect(
                dsn,
                statement_cache_size=1000,
                max_cached_statement_lifetime=0,
                server_settings=SETTINGS | {"plan_cache_mode": "force_generic_plan"},
            )
            for _ in range(3)
        ]
        for connection in connections:
            await prepare_connection(connection)

        return cls(*connections)

    async def fetch(
        self, sql: str, *args: Any, durable: bool = True, owner: SimulatedDatabase | None = None
    ) -> list[Any]:
        """A statement that is not ``durable`` is lost in a crash unless a durable one has written
        since."""
        if self._open is not None and self._open.owner is not owner:
            return await self._fetch_beside(sql, args)

        async with self._lock:
            if durable and self._tail and _writes(sql):
                await self._write_tail()

            await self._set_time(self._connection)
            rows = await self._run(sql, args, durable)
            if rows:
                await self._check_terms(_terms(sql, args), self._connection)

            return rows

    async def fetch_open(
        self,
        sql: str,
        args: tuple[Any, ...],
        owner: SimulatedDatabase,
        meanwhile: Callable[[], Awaitable[None]],
    ) -> list[Any]:
        """Run a statement of ``owner``, then ``meanwhile``, and commit the statement after that, or
        as soon as another manager's statement waits for it."""
        async with self._lock:
            await self._write_tail()
            await self._set_time(self._connection)
            await self._connection.execute("BEGIN")

            try:
                rows: list[Any] = await self._connection.fetch(sql, *args)
            except asyncpg.PostgresError:
                await self._connection.execute("ROLLBACK")
                raise

            self._open = OpenTransaction(owner, sql, _terms(sql, args) if rows else frozenset())
            self.transactions_kept_open += 1
            try:
                await meanwhile()
            finally:
                await self._commit(self._open)
                self._open = None

            return rows

    async def _fetch_beside(self, sql: str, args: tuple[Any, ...]) -> list[Any]:
        """Run a statement while another manager's transaction is open."""
        async with self._second_lock:
            await self._set_time(self._second)
            statement = asyncio.ensure_future(self._second.fetch(sql, *args))
            pid = self._second.get_server_pid()
            while not (await asyncio.wait({statement}, timeout=LOCK_POLL_S))[0]:
                blocking = await self._observer.fetchval("SELECT pg_blocking_pids($1)", pid)
                if blocking and self._open is not None:
                    self.lock_waits += not self._open.committed
                    await self._commit(self._open)

            rows: list[Any] = statement.result()
            if rows:
                await self._check_terms(_terms(sql, args), self._second)

            return rows

    async def _commit(self, transaction: OpenTransaction) -> None:
        if not transaction.committed:
            transaction.committed = True
            await self._check_terms(transaction.terms, self._observer)
            await self._connection.execute("COMMIT")

    async def _write_tail(self) -> None:
        """All commits so far reach the disk."""
        if self._tail:
            await self._connection.execute("COMMIT")
            self._tail = 0

    async def _set_time(self, connection: asyncpg.Connection) -> None:
        if self._times.get(connection) != (self.time, self.offset):
            now = EPOCH + timedelta(seconds=self.time + self.offset)
            await connection.execute(
                f"SET \"sim.now\" = '{now.isoformat()}'; SET \"sim.time\" = '{self.time}'"
            )
            self._times[connection] = self.time, self.offset

    async def _run(self, sql: str, args: tuple[Any, ...], durable: bool) -> list[Any]:
        if durable or not _writes(sql):  # if there is a tail, a durable statement only reads
            rows: list[Any] = await self._connection.fetch(sql, *args)
            return rows

        await self._connection.execute("SAVEPOINT s" if self._tail else "BEGIN; SAVEPOINT s")
        self._tail += 1
        try:
            rows = await self._connection.fetch(sql, *args)
        except asyncpg.PostgresError:
            await self._connection.execute("ROLLBACK TO s")
            raise

        return rows

    async def crash(self) -> int:
        """Lose the statements whose commit has not reached the disk. Returns the number of lost
        statements."""
        async with self._lock:
            lost = self._tail
            self._tail = 0
            self.crashes += 1
            if lost:
                await self._connection.execute("ROLLBACK")
                self._times.clear()
            return lost

    async def _check_terms(self, terms: frozenset[int], connection: asyncpg.Connection) -> None:
        if not terms:
            return
        lease = await connection.fetchrow("SELECT term FROM leases")
        if lease is None or terms != {lease["term"]}:
            self.former_leaders.append(
                f"a leader of term {set(terms)} wrote, and the term is {lease}"
            )

    async def clear(self, *, truncate: bool) -> None:
        await self.crash()
        if truncate:
            await self._connection.execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")
        else:
            for table in TABLES:
                await self._connection.execute(f"DELETE FROM {table}")

        await self._connection.execute("UPDATE resource_groups SET options = '{}', cursors = '{}'")
        await self._connection.execute("ALTER SEQUENCE generations RESTART")
        for table in RECORDED:
            await self._connection.execute(
                f"TRUNCATE {table}" if truncate else f"DELETE FROM {table}"
            )

        await self._connection.execute("DELETE FROM users WHERE name = 'root'")
        self.former_leaders.clear()
        await self._connection.execute("UPDATE resource_groups SET losses_held_since = NULL")
        self.time = 0.0
        self.offset = 0.0
        self._times.clear()

    async def close(self) -> None:
        for connection in (self._connection, self._second, self._observer):
            await connection.close()


def _terms(sql: str, args: tuple[Any, ...]) -> frozenset[int]:
    """The terms under which a statement writes."""
    for name, position in _TERMS.items():
        if sql == SQL[name]:
            given = args[position]
            return frozenset(
                t for t in (given if isinstance(given, list) else [given]) if t is not None
            )
    return frozenset()


class SimulatedConnection(DedicatedConnection):
    def __init__(self, database: SimulatedDatabase, durable: bool) -> None:
        self._database = database
        self._durable = durable

    @property
    def losses(self) -> int:  # type: ignore[override]
        return self._database.postgres.crashes

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return await self._database.run(sql, args, self._durable)

    async def close(self) -> None:
        pass


class SimulatedDatabase(Database):
    """The connections of one manager process."""

    def __init__(self, postgres: Postgres) -> None:
        super().__init__("postgresql://nobody@nowhere/nothing")
        self.postgres = postgres
        self.crashed = False

    def dedicated_connection(self, *, durable: bool = True) -> DedicatedConnection:
        return SimulatedConnection(self, durable)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        return await self.run(sql, args, durable=True)

    async def run(self, sql: str, args: tuple[Any, ...], durable: bool) -> list[Any]:
        operation = CURRENT.get()
        faulty = (
            operation is not None
            and operation.fault is not None
            and operation.count == operation.at
        )
        if operation is not None:
            operation.count += 1

        if faulty:
            assert operation is not None
            await self._inject(
                operation, {CRASH_BEFORE: CRASH, DISCONNECT_BEFORE: DISCONNECT, PAUSE_BEFORE: PAUSE}
            )

        if self.crashed:
            raise ManagerCrashed

        meanwhile = self._meanwhile(operation, sql)
        if meanwhile is not None:
            rows = await self.postgres.fetch_open(sql, args, self, meanwhile)
        else:
            rows = await self.postgres.fetch(sql, *args, durable=durable, owner=self)

        if faulty:
            assert operation is not None
            await self._inject(
                operation, {CRASH_AFTER: CRASH, DISCONNECT_AFTER: DISCONNECT, PAUSE_AFTER: PAUSE}
            )

        if self.crashed:
            raise ManagerCrashed

        return rows

    def _meanwhile(
        self, operation: Operation | None, sql: str
    ) -> Callable[[], Awaitable[None]] | None:
        """The actions of other managers before this statement commits. None means that it commits
        at once."""
        if operation is None or operation.meanwhile is None or not _writes(sql):
            return None

        operation.open_at -= 1
        if operation.open_at >= 0:
            return None

        meanwhile = operation.meanwhile
        operation.meanwhile = None
        return meanwhile

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
    """The fault and the number of its statement. Most operations have no fault."""
    kind = rng.choices([None, CRASH, DISCONNECT, PAUSE], [74, 6, 5, 15])[0]
    return (None, 0) if kind is None else (rng.choice(kind), rng.choice([0, 0, 1, 1, 1, 2, 3, 4]))
