"""Connections to Postgres: a small pool for occasional reads, dedicated connections for frequent
writes and for reads that the control loops repeat, and shared connections for all other statements.
Translates every connection failure into ``StoreUnavailable``.

A server that accepts no writes, such as a demoted primary, counts as unavailable: its data may be
out of date. Connections to it are refused or closed, and the next attempt may find the primary.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

import asyncpg
import structlog
from pydantic_core import from_json
from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.sql.compiler import SQLCompiler

from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.model.errors import Conflict, MoorageError, NotFound, StoreUnavailable
from moorage.manager.store.database.connector import DatabaseConnector
from moorage.manager.store.database.type_cache import TypeCachingConnection

log = structlog.get_logger("moorage.store")
# The pool would log every failed attempt to reconnect, with a traceback; the pool's users log an
# outage once.
logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)

# Errors that asyncpg raises when Postgres is down, starting, stopping, or has just closed the
# connection.
UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
_DIALECT = asyncpg_dialect()  # type: ignore[no-untyped-call]
# After this time, Postgres itself cancels a statement, even if nothing waits for its result any
# longer.
STATEMENT_TIMEOUT_S = 30.0
# The client gives up later than the server and closes the connection. Only this limit applies when
# the server does not answer at all, and to a commit that waits for a synchronous standby: Postgres
# does not apply ``statement_timeout`` to that wait. The commit then exists on the primary, and may
# be lost with it.
COMMAND_TIMEOUT_S = 35.0
_CONNECT_TIMEOUT_S = 5.0
# Longest wait for Postgres to cancel an abandoned statement; after that, the connection is closed
# anyway.
CANCEL_TIMEOUT_S = 2.0
POOL_SIZE = 6
# Planner settings of every connection. There is an index for every statement in ``sql/``, but the
# table statistics with which Postgres plans are stale or missing when tables have just been filled:
# * ``enable_seqscan=off``: a plan that was cached while a table was empty would scan the whole
#   table for as long as the plan stays cached. Where a small table without an index is scanned
#   nevertheless, that adds so much to the cost of every plan that Postgres 17 and earlier cannot
#   tell a good one from one that reads all ended sessions. tests/store/test_plans.py keeps such
#   statements apart from tables that grow.
# * ``random_page_cost=1.1``: index reads cost about as much as sequential reads on SSDs and in
#   memory. The default of 4 assumes spinning disks and favours scans.
# * ``jit=off``: compiling a statement takes longer than any of these statements runs. A prepared
# statement lives for 10 s, so that a plan made from outdated statistics does not last.
_OPTIONS: dict[str, Any] = {
    "timeout": _CONNECT_TIMEOUT_S,
    "command_timeout": COMMAND_TIMEOUT_S,
    "max_cached_statement_lifetime": 10,
}
_SETTINGS = {
    "jit": "off",
    "enable_seqscan": "off",
    "random_page_cost": "1.1",
    "statement_timeout": f"{STATEMENT_TIMEOUT_S:g}s",
    "idle_in_transaction_session_timeout": f"{STATEMENT_TIMEOUT_S:g}s",
}
# Planning a statement takes about 1 ms, and starting a session runs ten statements. Statements on
# dedicated connections look rows up by id, so their plans stay good for longer than the pool's.
_DEDICATED_PLAN_LIFETIME_S = 60
# By default, Postgres plans the first five executions of a prepared statement for their arguments
# before it considers a generic plan. Planning takes longer than running these statements, so the
# generic plan is used from the start.
_DEDICATED_SETTINGS = _SETTINGS | {"plan_cache_mode": "force_generic_plan"}


async def prepare_connection(connection: asyncpg.Connection) -> None:
    """Decode jsonb to Python values and uuid to strings."""
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=from_json, schema="pg_catalog"
    )
    await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")


async def _skip_reset(_: asyncpg.Connection) -> None:
    """Skip the reset on each release, which takes a round trip, because nothing here changes a
    connection's settings."""


# Refusals by our triggers, by SQLSTATE: Postgres leaves classes from I to Z to applications. The
# message and the hint are written for whoever has sent the request.
_REFUSALS: dict[str, type[MoorageError]] = {"MG001": Conflict, "MG002": NotFound}


class StatementTimeout(StoreUnavailable):
    """The database has cancelled a statement that took too long."""


@asynccontextmanager
async def translate_errors(is_closed: Callable[[], bool]) -> AsyncIterator[None]:
    """Raise ``StoreUnavailable`` for every error that means that Postgres currently cannot be
    used, and ``Conflict`` or ``NotFound`` for what a trigger refuses."""
    try:
        yield
    except asyncpg.UnknownPostgresError as error:
        refusal = _REFUSALS.get(error.sqlstate or "")
        if refusal is None:
            raise
        raise refusal(str(error.message), next_step=error.hint) from error
    except asyncpg.DiskFullError as error:
        raise StoreUnavailable(
            "the disk of Postgres is full",
            next_step=(
                "free space on the volume of its data directory; writes then resume without "
                "a restart"
            ),
        ) from error
    except asyncpg.QueryCanceledError as error:
        raise StatementTimeout(
            f"Postgres has ended a statement: {error}",
            next_step=(
                "try again in a moment; pg_stat_activity shows which sessions hold locks or take "
                "long"
            ),
        ) from error
    except (asyncpg.ReadOnlySQLTransactionError, asyncpg.TargetServerAttributeNotMatched) as error:
        raise StoreUnavailable(
            "Postgres accepts no writes: it is a standby, or default_transaction_read_only is on",
            next_step="promote it, or set manager.dsn to the primary; several hosts are allowed",
        ) from error
    except (*UNAVAILABLE, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        # asyncpg raises the last two both for a closed connection and for wrong use of its API.
        # Only a closed connection means that Postgres is unavailable; wrong use is a bug and is
        # raised as it is.
        if not isinstance(error, UNAVAILABLE) and not is_closed():
            raise

        raise StoreUnavailable(
            next_step="try again in a moment; `moorage doctor` checks Postgres"
        ) from error


async def open_connection(
    connector: DatabaseConnector, settings: Mapping[str, str] = _SETTINGS, **options: Any
) -> asyncpg.Connection:
    """Open a connection that accepts writes. ``options`` override those of all connections."""
    connection = await connector.connect(settings, **_OPTIONS | options)
    try:
        await prepare_connection(connection)
    except BaseException:
        connection.terminate()
        raise

    return connection


async def fetch_writable(connection: Any, sql: str, *args: Any) -> list[Any]:
    """Run one statement. Closes a connection that accepts no writes or is out of step with the
    server."""
    try:
        rows: list[Any] = await connection.fetch(sql, *args)
    except (asyncpg.InternalClientError, asyncpg.ReadOnlySQLTransactionError):
        # ``InternalClientError`` means that asyncpg has lost track of the protocol state, because
        # the connection broke within a message.
        connection.terminate()
        raise

    # Since version 14, Postgres reports both settings with the next answer after they have changed.
    settings = connection.get_settings()
    for name in ("in_hot_standby", "default_transaction_read_only"):
        if getattr(settings, name, "off") == "on":
            connection.terminate()
            raise asyncpg.ReadOnlySQLTransactionError(f"{name} is on")

    return rows


async def close_abandoned(connection: asyncpg.Connection) -> None:
    """Close a connection once Postgres has cancelled its statement, for which nothing waits any
    longer.

    asyncpg has requested the cancellation, and drops the request if the connection is closed
    immediately. The server would then continue to run a statement until its timeout, and a commit
    that waits for a standby indefinitely.
    """
    try:
        await connection.close(timeout=CANCEL_TIMEOUT_S)
    except (
        *UNAVAILABLE,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
    ):
        connection.terminate()


def _is_released(connection: Any) -> bool:
    """Whether a connection from the pool is closed. A terminated connection has left the pool, and
    then even this question raises an error."""
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        return True


class DedicatedConnection:
    """One connection for one kind of statement, opened on first use and reopened after a failure.
    It runs statements whose generic plan suits all arguments.

    A statement whose connection breaks raises ``StoreUnavailable``. Whether it took effect is then
    unknown, so every write is a compare-and-swap, or carries its own id, and may be sent again.
    """

    def __init__(self, connector: DatabaseConnector, *, durable: bool = True) -> None:
        self._connector = connector
        settings = (
            _DEDICATED_SETTINGS if durable else _DEDICATED_SETTINGS | {"synchronous_commit": "off"}
        )
        self._options: dict[str, Any] = {
            "settings": settings,
            "max_cached_statement_lifetime": _DEDICATED_PLAN_LIFETIME_S,
        }
        self._connection: asyncpg.Connection | None = None
        self._closing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

        # Number of connections that have ended; without ``durable``, the latest commits may be lost
        # with them.
        self.losses = 0

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._lock, translate_errors(self._is_closed):
            if self._connection is None or self._connection.is_closed():
                self._connection = await open_connection(self._connector, **self._options)
                self._connection.add_termination_listener(self._on_loss)

            connection = self._connection
            try:
                return await fetch_writable(connection, sql, *args)
            except (asyncio.CancelledError, TimeoutError):
                # The statement was cancelled only on our side, for example because an agent
                # disconnected in the middle of its report. The next caller must not wait behind
                # that statement.
                self._connection = None
                connection.remove_termination_listener(self._on_loss)
                self._on_loss(connection)  # immediately, not only once the connection has closed
                self._closing = spawn("store.close", close_abandoned(connection))
                raise

    def _on_loss(self, _: asyncpg.Connection) -> None:
        self.losses += 1

    def _is_closed(self) -> bool:
        return self._connection is None or bool(self._connection.is_closed())

    async def close(self) -> None:
        await cancel_and_wait(self._closing)
        if self._connection is not None:
            self._connection.terminate()


class Purpose(StrEnum):
    """Kinds of statements on shared connections, by who waits for them."""

    ADMINISTRATION = "administration"
    """A person waits: changes by administrators and users, such as keys, quotas and secrets."""
    UPKEEP = "upkeep"
    """Nobody waits: background writes and deletions by loops, such as usage and expired rows."""


# Rendering takes longer than everything else about a listing of a few rows, so statements are
# rendered once. Those that differ only in their values, or in how many a list has, are the same.
_RENDERED: dict[Any, SQLCompiler] = {}
_KEPT_STATEMENTS = 500


def _rendered(statement: Select[Any]) -> tuple[str, Sequence[Any]]:
    """Text of a composed read, with the values of its parameters."""
    key = statement._generate_cache_key()
    assert key is not None, "a composed read consists of parts that SQLAlchemy can compare"
    compiled = _RENDERED.get(key.key)
    if compiled is None:
        if len(_RENDERED) >= _KEPT_STATEMENTS:
            _RENDERED.clear()

        compiled = statement.compile(dialect=_DIALECT, cache_key=key)
        _RENDERED[key.key] = compiled

    values = compiled.construct_params(extracted_parameters=key.bindparams)
    state = compiled.construct_expanded_state(values, escape_names=False)
    return state.statement, state.positional_parameters


class Database:
    """A pool for occasional reads (``fetch``, ``select``), ``dedicated_connection()`` for
    statements that run often, and ``shared_connection()`` for statements that take turns with
    others of their kind."""

    def __init__(self, dsn: str, connector: DatabaseConnector | None = None) -> None:
        self.dsn = dsn
        self.connector = connector or DatabaseConnector(dsn)
        self._pool: asyncpg.Pool | None = None
        self._dedicated: list[DedicatedConnection] = []
        self._shared: dict[tuple[Purpose, bool], DedicatedConnection] = {}

    @property
    def most_connections(self) -> int:
        """Maximum number of connections that the pool opens."""
        return POOL_SIZE + len(self._dedicated)

    def dedicated_connection(self, *, durable: bool = True) -> DedicatedConnection:
        """Without ``durable``, a commit does not wait for the disk, and a crash of Postgres may
        lose it. This suits reports, which are repeated anyway."""
        self._dedicated.append(DedicatedConnection(self.connector, durable=durable))
        return self._dedicated[-1]

    def shared_connection(self, purpose: Purpose, *, durable: bool = True) -> DedicatedConnection:
        """The connection of all statements with this purpose: each Postgres backend needs some 10
        MB, and most statements run too rarely for a separate connection. ``durable``: as for
        ``dedicated_connection``."""
        if (purpose, durable) not in self._shared:
            self._shared[purpose, durable] = self.dedicated_connection(durable=durable)
        return self._shared[purpose, durable]

    async def __aenter__(self) -> Database:
        async with translate_errors(lambda: True):
            self._pool = await asyncpg.create_pool(
                self.dsn,
                min_size=1,
                max_size=POOL_SIZE,
                connect=self._connect_pooled,
                init=prepare_connection,
                reset=_skip_reset,
                connection_class=TypeCachingConnection,
                **_OPTIONS,
            )

        return self

    async def _connect_pooled(self, dsn: str, **options: Any) -> asyncpg.Connection:
        return await self.connector.connect(_SETTINGS, **options)

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._dedicated:
            await connection.close()
        if self._pool is not None:
            self._pool.terminate()

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        assert self._pool is not None, "enter the Database before using it"
        async with translate_errors(lambda: True):
            connection = await self._pool.acquire(timeout=COMMAND_TIMEOUT_S)

        try:
            async with translate_errors(lambda: _is_released(connection)):
                return await fetch_writable(connection, sql, *args)
        finally:
            async with translate_errors(lambda: True):
                # Closing waits until Postgres has cancelled an abandoned statement.
                await self._pool.release(connection, timeout=CANCEL_TIMEOUT_S)

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def select(self, statement: Select[Any]) -> list[Any]:
        """Run a composed read. SQLAlchemy Core renders the SQL and asyncpg runs it, which saves
        SQLAlchemy's cost per row."""
        sql, args = _rendered(statement)
        return await self.fetch(sql, *args)
