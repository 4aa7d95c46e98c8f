"""Databases for tests on a running Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from moorage.common.aio.clock import SystemClock


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def database_at(server_dsn: str, name: str) -> str:
    """The DSN of a database on this server."""
    return urlunsplit(urlsplit(server_dsn)._replace(path=f"/{name}"))


@asynccontextmanager
async def new_database(server_dsn: str, template: str = "template1") -> AsyncIterator[str]:
    """The DSN of a database on this server, a copy of ``template``, dropped at the end."""
    name = f"test_{SystemClock().new_id().replace('-', '')}"
    await execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    yield database_at(server_dsn, name)
    await execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")
