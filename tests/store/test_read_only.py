"""A Postgres that accepts no writes is considered unavailable: connections to it are closed, and
other hosts are tried."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from moorage.common.aio.clock import SystemClock
from moorage.common.model.errors import StoreUnavailable
from moorage.manager.postgres import EmbeddedPostgres
from moorage.manager.postgres.binaries import find_binaries, server_user
from moorage.manager.store import migrate
from moorage.manager.store.database.connections import Database
from moorage.manager.store.database.connector import DatabaseConnector
from tests.addresses import free_port
from tests.databases import copied_postgres

from .conftest import open_store

THROUGH = ["line", "pool"]
PID = "SELECT pg_backend_pid() AS pid"
# Fails as any write on a standby does.
REFUSED_WRITE = "SELECT set_config('transaction_read_only', 'on', true), nextval('numbers') AS pid"


@pytest.fixture
def primary(stopped_postgres: Path, home: Path) -> EmbeddedPostgres:
    """Not started yet."""
    directory = copied_postgres(stopped_postgres, home / "pg")
    return EmbeddedPostgres(directory, clock=SystemClock(), extra={"fsync": "off"})


@pytest_asyncio.fixture
async def postgres(primary: EmbeddedPostgres) -> AsyncIterator[EmbeddedPostgres]:
    """A separate server, because its settings change."""
    async with primary:
        yield primary


async def set_read_only(dsn: str, value: str) -> None:
    admin = await asyncpg.connect(dsn, server_settings={"default_transaction_read_only": "off"})
    await admin.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await admin.execute("SELECT pg_reload_conf()")
    await admin.close()


async def outcome(fetch: Any, sql: str = PID) -> int:
    """The pid of the connection's backend, or 0 if Postgres is considered unavailable."""
    try:
        return int((await fetch(sql))[0]["pid"])
    except StoreUnavailable as error:
        return 0 if "accepts no writes" in str(error) else -1


async def until(fetch: Any, available: bool) -> int:
    async with asyncio.timeout(20):
        while bool(pid := await outcome(fetch)) is not available:
            await asyncio.sleep(0.02)
    return pid


@pytest.mark.parametrize("through", THROUGH)
async def test_demoted_server_is_left_and_found_again(
    postgres: EmbeddedPostgres, through: str
) -> None:
    """The same applies to reads, because a demoted primary returns outdated data."""
    async with Database(postgres.dsn) as database:
        fetch = database.dedicated_connection().fetch if through == "line" else database.fetch
        before = await until(fetch, available=True)
        await set_read_only(postgres.dsn, "on")
        await until(fetch, available=False)
        for _ in range(5):
            assert await outcome(fetch) == 0, "and stays away for reads and writes"

        await set_read_only(postgres.dsn, "off")
        assert await until(fetch, available=True) != before, "that connection was closed"


@pytest.mark.parametrize("through", THROUGH)
async def test_refused_write_closes_the_connection(empty_database: str, through: str) -> None:
    """SQLSTATE 25006. Servers before version 14 do not announce that they are read-only."""
    async with Database(empty_database) as database:
        fetch = database.dedicated_connection().fetch if through == "line" else database.fetch
        await fetch("CREATE SEQUENCE numbers")
        before = await outcome(fetch)
        assert await outcome(fetch, REFUSED_WRITE) == 0
        assert await outcome(fetch) not in (0, before)


async def test_manager_of_a_demoted_server_is_not_ready(postgres: EmbeddedPostgres) -> None:
    await migrate(postgres.dsn)
    async with open_store(postgres.dsn) as store:
        assert await store.leases.acquire("one", 10) is not None
        await set_read_only(postgres.dsn, "on")
        await until(store.database.fetch, available=False)
        with pytest.raises(StoreUnavailable):
            await store.leases.acquire("one", 10)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await migrate(postgres.dsn)

        await set_read_only(postgres.dsn, "off")
        await until(store.database.fetch, available=True)
        assert await store.leases.acquire("one", 10) is not None


@contextmanager
def standby(primary: EmbeddedPostgres, binaries: Path, state: Path, port: int) -> Iterator[None]:
    """A streaming standby of ``primary`` that listens on ``port``."""
    user = server_user()
    password = urlsplit(primary.dsn).password or ""
    state.mkdir(mode=0o700)
    run_as: dict[str, Any] = {"env": {"PGPASSWORD": password, "LC_ALL": "C"}, "cwd": "/"}
    if user is not None:
        os.chown(state, user.uid, user.gid)
        run_as |= {"user": user.uid, "group": user.gid, "extra_groups": []}

    source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "moorage"]
    copy = [
        str(binaries / "pg_basebackup"),
        *source,
        "-D",
        str(state / "data"),
        "-c",
        "fast",
        "-R",
        "-N",
    ]
    subprocess.run(copy, check=True, capture_output=True, timeout=60, **run_as)
    flags = ["-p", str(port), "-c", "unix_socket_directories=", "-c", "listen_addresses=127.0.0.1"]
    command = [
        str(binaries / "postgres"),
        "-D",
        str(state / "data"),
        *flags,
        "-c",
        "max_connections=50",
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **run_as
    )
    try:
        yield
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait(20)


async def promote(dsn: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                admin = await asyncpg.connect(dsn)
                break
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.05)
    assert await admin.fetchval("SELECT pg_promote(true, 20)")
    await admin.close()


async def test_promoted_standby_takes_over(primary: EmbeddedPostgres, home: Path) -> None:
    binaries = find_binaries(None, server_user(), major=None).bin_dir
    if not (binaries / "pg_basebackup").exists():
        pytest.skip("this Postgres has no pg_basebackup")

    port = free_port()
    async with AsyncExitStack() as stack:
        async with primary:
            address = f"127.0.0.1:{primary.port}"
            second = primary.dsn.replace(address, f"127.0.0.1:{port}")
            stack.enter_context(standby(primary, binaries, home / "standby", port))
            both = primary.dsn.replace(address, f"127.0.0.1:{port},{address}")
            database = await stack.enter_async_context(Database(both))
            through = {"line": database.dedicated_connection().fetch, "pool": database.fetch}
            read_only = "SELECT pg_is_in_recovery()::int AS pid"
            for fetch in through.values():
                await until(fetch, available=True)

            await migrate(both)
            for fetch in through.values():
                assert not (await fetch(read_only))[0]["pid"], (
                    "the standby comes first, and is not used"
                )

        # The primary has stopped; the standby only accepts reads.
        for fetch in through.values():
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await fetch("SELECT 1")

        await promote(second)
        async with asyncio.timeout(20):
            for name, fetch in through.items():
                await write(fetch, f"CREATE TABLE written_after_the_failover_through_the_{name} ()")


async def write(fetch: Any, sql: str) -> None:
    """Once Postgres is available."""
    while True:
        try:
            await fetch(sql)
            return
        except StoreUnavailable:
            await asyncio.sleep(0.05)


async def test_read_only_primary_is_waited_for_where_the_settings_say_so(
    postgres: EmbeddedPostgres, home: Path
) -> None:
    """``manager.database_target_session_attrs``, with another host that accepts writes."""
    binaries = find_binaries(None, server_user(), major=None).bin_dir
    if not (binaries / "pg_basebackup").exists():
        pytest.skip("this Postgres has no pg_basebackup")

    port = free_port()
    address = f"127.0.0.1:{postgres.port}"
    second = postgres.dsn.replace(address, f"127.0.0.1:{port}")
    both = postgres.dsn.replace(address, f"{address},127.0.0.1:{port}")
    used = "SELECT inet_server_port() AS pid"
    with standby(postgres, binaries, home / "other", port):
        await promote(second)
        await set_read_only(postgres.dsn, "on")
        async with Database(both) as database:
            assert await outcome(database.fetch, used) == port

        async with Database(
            both, DatabaseConnector(both, target_session_attrs="primary")
        ) as database:
            for _ in range(3):
                assert await outcome(database.fetch, used) == 0

            await set_read_only(postgres.dsn, "off")
            await until(database.fetch, available=True)
            assert await outcome(database.fetch, used) == postgres.port
