"""Test databases on a running Postgres."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from moorage.common.aio.clock import SystemClock


async def execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


UNKNOWN_ROLE = "nobody"
"""A role that does not exist; the tests' server asks it for a password."""


async def trust_local_connections(dsn: str) -> None:
    """Ask no other role for a password: checking one takes both ends 2 ms of CPU time, and a case
    opens six connections."""
    connection = await asyncpg.connect(dsn)
    try:
        rules = Path(await connection.fetchval("SHOW hba_file"))
        rules.write_text(
            f"host all {UNKNOWN_ROLE} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        )
        await connection.execute("SELECT pg_reload_conf()")
    finally:
        await connection.close()


def database_at(server_dsn: str, name: str) -> str:
    """The DSN of a database on this server."""
    return urlunsplit(urlsplit(server_dsn)._replace(path=f"/{name}"))


def copied_postgres(stopped: Path, copy: Path) -> Path:
    """``copy``: the directory of a server to copy instead of initializing one, which takes seconds
    of CPU time."""
    # shutil would not preserve the owner.
    subprocess.run(["cp", "-a", "--", stopped, copy], check=True)
    return copy


class DatabaseServer:
    """A running Postgres and one connection to it, over which databases are created and dropped:
    connecting for each statement costs as much CPU time as the database itself."""

    def __init__(self, dsn: str, connection: asyncpg.Connection) -> None:
        self.dsn = dsn
        self._connection = connection
        self._unused: list[str] = []

    @asynccontextmanager
    async def new_database(self, template: str = "template1") -> AsyncIterator[str]:
        """The DSN of a copy of ``template``, which is dropped some time after the test.

        Connections to it are still closing when a test ends, and Postgres waits 100 ms before it
        checks again.
        """
        name = f"test_{SystemClock().new_id().replace('-', '')}"
        await self._connection.execute(
            f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        )
        await self.drop_unused()
        yield database_at(self.dsn, name)
        self._unused.append(name)

    async def drop_unused(self) -> None:
        while self._unused:
            await self._connection.execute(f"DROP DATABASE {self._unused.pop()} WITH (FORCE)")


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[DatabaseServer]:
    connection = await asyncpg.connect(dsn)
    try:
        server = DatabaseServer(dsn, connection)
        yield server
        await server.drop_unused()
    finally:
        await connection.close()


@asynccontextmanager
async def new_database(server_dsn: str) -> AsyncIterator[str]:
    """The DSN of an empty database on this server, dropped on exit."""
    async with connected(server_dsn) as server, server.new_database() as dsn:
        yield dsn
