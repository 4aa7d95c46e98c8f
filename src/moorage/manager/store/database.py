"""Connections to Postgres: a small pool for occasional reads, and dedicated connections for writes and for
the reads that the control loops repeat. Translates every connection failure into ``StoreUnavailable``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import structlog
from sqlalchemy import Select
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect

from moorage.common.model.errors import StoreUnavailable

log = structlog.get_logger("moorage.store")

# What asyncpg raises when Postgres is down, starting, stopping, or has just closed the connection.
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
COMMAND_TIMEOUT_S = 30.0
POOL_SIZE = 6
# Planner settings of every connection. Every statement in ``sql/`` has an index to use, but Postgres plans by
# table statistics that are stale or missing when tables have just filled up:
# * ``enable_seqscan=off``: a plan that was cached while a table was empty would scan it from end to end for
#   as long as it stays cached.
# * ``random_page_cost=1.1``: index reads cost about as much as sequential reads on SSDs and in memory. The
#   default of 4 assumes spinning disks and favours scans.
# * ``jit=off``: compiling a statement takes longer than any of these statements runs.
# A prepared statement lives for 10 s, so that a plan made from outdated statistics does not last.
_OPTIONS: dict[str, Any] = {
    "timeout": 5,
    "command_timeout": COMMAND_TIMEOUT_S,
    "server_settings": {"jit": "off", "enable_seqscan": "off", "random_page_cost": "1.1"},
    "max_cached_statement_lifetime": 10,
}
# Planning a statement takes about 1 ms, and starting a session runs ten of them. Statements on dedicated
# connections look rows up by id, so their plans stay good for longer than those of the pool.
_DEDICATED_PLAN_LIFETIME_S = 60
# By default Postgres plans the first five executions of a prepared statement for their arguments before it
# considers a generic plan. Planning takes longer than running these, so the generic plan is used at once.
_DEDICATED_SETTINGS = _OPTIONS["server_settings"] | {"plan_cache_mode": "force_generic_plan"}


async def prepare_connection(connection: asyncpg.Connection) -> None:
    """Decode jsonb to Python values and uuid to strings."""
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")


async def _skip_reset(_: asyncpg.Connection) -> None:
    """Save the round trip of a reset at each release: nothing here changes a connection's settings."""


@asynccontextmanager
async def _translate_errors(is_closed: Callable[[], bool]) -> AsyncIterator[None]:
    try:
        yield
    except asyncpg.DiskFullError as error:
        raise StoreUnavailable(
            "the disk of Postgres is full",
            next_step="free space on the volume of its data directory; writes then resume without a restart",
        ) from error
    except (*UNAVAILABLE, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        # asyncpg raises the last two for a closed connection and for wrong use of its API. Only a closed
        # connection means that Postgres is unavailable; wrong use is a bug and is raised as it is.
        if not isinstance(error, UNAVAILABLE) and not is_closed():
            raise
        raise StoreUnavailable(next_step="try again in a moment; `moorage doctor` checks Postgres") from error


class DedicatedConnection:
    """One connection for one kind of statement, opened on first use and reopened after a failure. It runs
    statements whose generic plan is good for all arguments.

    A statement whose connection breaks raises ``StoreUnavailable``. Whether it took effect is then unknown,
    so every write is a compare-and-swap, or carries its own id, and may be sent again.
    """

    def __init__(self, dsn: str, *, durable: bool = True) -> None:
        self._dsn = dsn
        settings = _DEDICATED_SETTINGS if durable else _DEDICATED_SETTINGS | {"synchronous_commit": "off"}
        self._options = _OPTIONS | {
            "server_settings": settings,
            "max_cached_statement_lifetime": _DEDICATED_PLAN_LIFETIME_S,
        }
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()
        self.losses = (
            0  # connections that ended: without ``durable``, the latest commits may be lost with them
        )

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._lock, _translate_errors(self._is_closed):
            connection = self._connection
            if connection is None or connection.is_closed():
                connection = await asyncpg.connect(self._dsn, **self._options)
                await prepare_connection(connection)
                connection.add_termination_listener(self._on_loss)
                self._connection = connection
            try:
                rows: list[Any] = await connection.fetch(sql, *args)
            except asyncpg.InternalClientError:
                # asyncpg lost track of the protocol state (the connection broke within a message).
                connection.terminate()
                raise
            except (asyncio.CancelledError, TimeoutError):
                # Cancelled on our side only (an agent disconnected in the middle of its report). Postgres may
                # still run the statement, and the next caller would wait behind it.
                connection.terminate()
                raise
            return rows

    def _on_loss(self, _: asyncpg.Connection) -> None:
        self.losses += 1

    def _is_closed(self) -> bool:
        return self._connection is None or bool(self._connection.is_closed())

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


class Database:
    """A pool for occasional statements (``fetch``, ``select``), and ``dedicated_connection()`` for the
    rest."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._pool: asyncpg.Pool | None = None
        self._dedicated: list[DedicatedConnection] = []

    def dedicated_connection(self, *, durable: bool = True) -> DedicatedConnection:
        """Without ``durable`` a commit does not wait for the disk, and a crash of Postgres may lose it. That
        suits reports, which are repeated anyway."""
        self._dedicated.append(DedicatedConnection(self.dsn, durable=durable))
        return self._dedicated[-1]

    async def __aenter__(self) -> Database:
        async with _translate_errors(lambda: True):
            self._pool = await asyncpg.create_pool(
                self.dsn,
                min_size=1,
                max_size=POOL_SIZE,
                init=prepare_connection,
                reset=_skip_reset,
                **_OPTIONS,
            )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for connection in self._dedicated:
            await connection.close()
        if self._pool is not None:
            self._pool.terminate()

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        assert self._pool is not None, "enter the Database before using it"
        async with _translate_errors(lambda: True):
            connection = await self._pool.acquire(timeout=COMMAND_TIMEOUT_S)
        try:
            async with _translate_errors(connection.is_closed):
                rows: list[Any] = await connection.fetch(sql, *args)
                return rows
        finally:
            await self._pool.release(connection)

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def select(self, statement: Select[Any]) -> list[Any]:
        """Run a composed read. SQLAlchemy Core renders the SQL and asyncpg runs it, which saves SQLAlchemy's
        cost per row."""
        compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        names: Sequence[str] = compiled.positiontup or ()
        return await self.fetch(str(compiled), *(compiled.params[name] for name in names))
