"""Connections to Postgres: a small pool for what is asked now and then, dedicated lines for writes and for
what the loops read again and again, failures translated once."""

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

# What asyncpg raises when Postgres is away, starting, stopping, or has just cut the line.
AWAY = (
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
# Postgres keeps the plan of a statement that is run again and again, also one made while tables were empty,
# which reads them from end to end. Ours all have an index to go by; and after 10 s a plan is made anew.
_OPTIONS: dict[str, Any] = {
    "timeout": 5,
    "command_timeout": COMMAND_TIMEOUT_S,
    "server_settings": {"jit": "off", "enable_seqscan": "off", "random_page_cost": "1.1"},
    "max_cached_statement_lifetime": 10,
}
# To plan anew costs a statement 1 ms, and a start runs ten of them: where one comes now and then, they would
# be planned for each. What lines run finds its rows by their ids, so its plans age better.
_LINE_PLAN_S = 60
# Else the first five runs of each such plan are planned by themselves, which takes longer than to run them.
_LINE_SETTINGS = _OPTIONS["server_settings"] | {"plan_cache_mode": "force_generic_plan"}


async def _init(connection: asyncpg.Connection) -> None:
    await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")


async def _keep_as_it_is(_: asyncpg.Connection) -> None:
    """Nothing here changes a connection's settings, so putting them back at each release is a wasted trip."""


@asynccontextmanager
async def _translated(closed: Callable[[], bool]) -> AsyncIterator[None]:
    try:
        yield
    except asyncpg.DiskFullError as error:
        raise StoreUnavailable(
            "the disk of Postgres is full",
            next_step="free space where its data are; everything goes on by itself then",
        ) from error
    except (*AWAY, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        # asyncpg says with these both that a line is closed and that a statement was called wrongly: only the
        # first is the world's fault.
        if not isinstance(error, AWAY) and not closed():
            raise
        raise StoreUnavailable(
            next_step="try again in a moment; `moorage doctor` looks at Postgres"
        ) from error


class Line:
    """One connection of its own for one kind of statement, opened when first used and again after it broke.
    It is for statements of ours whose plan is good whatever their arguments are.

    A statement whose line breaks raises ``StoreUnavailable``: whether it took effect is then unknown, so
    every write is a compare-and-swap, or carries its own id, and may be sent again.
    """

    def __init__(self, dsn: str, *, durable: bool = True) -> None:
        self._dsn = dsn
        settings = _LINE_SETTINGS if durable else _LINE_SETTINGS | {"synchronous_commit": "off"}
        self._options = _OPTIONS | {
            "server_settings": settings,
            "max_cached_statement_lifetime": _LINE_PLAN_S,
        }
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        async with self._lock, _translated(self._is_closed):
            connection = self._connection
            if connection is None or connection.is_closed():
                connection = await asyncpg.connect(self._dsn, **self._options)
                await _init(connection)
                self._connection = connection
            try:
                rows: list[Any] = await connection.fetch(sql, *args)
            except asyncpg.InternalClientError:
                # asyncpg lost count of where the line is (it was cut in mid-sentence): good for nothing.
                connection.terminate()
                raise
            except (asyncio.CancelledError, TimeoutError):
                # Given up on our side only (an agent left in the middle of its report): Postgres may be at it
                # still, and whoever comes next would wait behind it.
                connection.terminate()
                raise
            return rows

    def _is_closed(self) -> bool:
        return self._connection is None or bool(self._connection.is_closed())

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()


class Database:
    """What is asked now and then through a pool (``fetch``, ``select``), the rest through a ``line()``."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._pool: asyncpg.Pool | None = None
        self._lines: list[Line] = []

    def line(self, *, durable: bool = True) -> Line:
        """Without ``durable`` a write does not wait for the disk, and a crash of Postgres may lose it: for
        what is said again in a moment."""
        self._lines.append(Line(self.dsn, durable=durable))
        return self._lines[-1]

    async def __aenter__(self) -> Database:
        async with _translated(lambda: True):
            self._pool = await asyncpg.create_pool(
                self.dsn, min_size=1, max_size=6, init=_init, reset=_keep_as_it_is, **_OPTIONS
            )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for line in self._lines:
            await line.close()
        if self._pool is not None:
            self._pool.terminate()

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        assert self._pool is not None, "the database is used before it was entered"
        async with _translated(lambda: True):
            connection = await self._pool.acquire(timeout=COMMAND_TIMEOUT_S)
        try:
            async with _translated(connection.is_closed):
                rows: list[Any] = await connection.fetch(sql, *args)
                return rows
        finally:
            await self._pool.release(connection)

    async def fetchrow(self, sql: str, *args: Any) -> Any:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def select(self, statement: Select[Any]) -> list[Any]:
        """Run a composed read. Core writes the SQL; asyncpg runs it, without SQLAlchemy's cost per row."""
        compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
        names: Sequence[str] = compiled.positiontup or ()
        return await self.fetch(str(compiled), *(compiled.params[name] for name in names))
