"""A manager's store behind PgBouncer in session mode, which rejects settings at connection
start."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import pytest_asyncio

from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec
from moorage.manager.postgres.binaries import server_user
from moorage.manager.store import Store, Topic, migrate
from tests.addresses import free_port
from tests.e2e.harness import Platform, until

pytestmark = pytest.mark.cluster


@pytest_asyncio.fixture
async def pooled(empty_database: str, home: Path) -> AsyncIterator[str]:
    """The DSN of an empty database through a PgBouncer."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed: make test-cluster installs it")

    server = urlsplit(empty_database)
    port = free_port()
    state = home / "pgbouncer"
    name = server.path.lstrip("/")
    at = f"host={server.hostname} port={server.port} user={server.username}"
    password = f" password={server.password}" if server.password else ""
    state.mkdir(mode=0o700)
    (state / "users").write_text(f'"{server.username}" "{server.password or ""}"\n')
    (state / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = {at}{password}\n[pgbouncer]\npool_mode = session\nauth_type = trust\n"
        f"auth_file = {state}/users\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "default_pool_size = 60\n"
    )
    run_as: dict[str, Any] = {}
    if (user := server_user()) is not None:
        for path in (state, *state.iterdir()):
            os.chown(path, user.uid, user.gid)
        run_as = {"user": user.uid, "group": user.gid, "extra_groups": []}

    process = subprocess.Popen([program, "-q", str(state / "pgbouncer.ini")], cwd="/", **run_as)
    dsn = urlunsplit(server._replace(netloc=f"{server.username}@127.0.0.1:{port}"))
    try:
        async with asyncio.timeout(20):
            while not await answers(dsn):
                await asyncio.sleep(0.05)

        yield dsn
    finally:
        process.terminate()
        process.wait(20)


async def answers(dsn: str) -> bool:
    try:
        await (await asyncpg.connect(dsn)).close()
    except (OSError, asyncpg.PostgresError):
        return False
    return True


async def test_settings_at_the_start_are_refused(pooled: str) -> None:
    """The reason for the SET statements after connecting."""
    with pytest.raises(asyncpg.ProtocolViolationError, match="unsupported startup parameter"):
        await asyncpg.connect(pooled, server_settings={"statement_timeout": "1s"})


async def test_store_works_with_its_time_limits(pooled: str) -> None:
    await migrate(pooled)
    async with Store(pooled, SystemClock()) as store, Store(pooled, SystemClock()) as other:
        dedicated = store.database.dedicated_connection()
        for fetch in (store.database.fetch, dedicated.fetch):
            rows = await fetch("SELECT current_setting('statement_timeout') AS limit")
            assert rows[0]["limit"] == "30s"

        mode = await dedicated.fetch("SELECT current_setting('plan_cache_mode') AS mode")
        assert mode[0]["mode"] == "force_generic_plan"
        assert await store.leases.acquire("one", 10) == 1
        assert await other.leases.acquire("two", 10) is None
        heard = asyncio.Event()
        other.notifier.on(Topic.LEADER, heard.set)

        async with asyncio.timeout(20):
            while not heard.is_set():
                store.notifier.notify([Topic.LEADER])
                await asyncio.sleep(0.1)


async def test_next_client_gets_a_connection_without_these_settings(pooled: str) -> None:
    await migrate(pooled)
    async with Store(pooled, SystemClock()) as store:
        await store.ping()
    plain = await asyncpg.connect(pooled)
    assert await plain.fetchval("SHOW plan_cache_mode") == "auto"
    assert await plain.fetchval("SHOW statement_timeout") == "0"
    await plain.close()


async def test_session_runs_to_its_end(pooled: str, home: Path) -> None:
    """The whole platform, as processes: a manager opens more connections than PgBouncer allows by
    default."""
    platform = Platform(home)
    platform.env |= {"MOORAGE_MANAGER__DSN": pooled, "MOORAGE_AGENT__INVENTORY": "fake:1xH100"}

    try:
        platform.start("manager")
        await platform.wait_until_ready()
        platform.start("agent")
        small = {"cpu": "0.1", "mem": "32MiB"}
        async with platform.client() as client:
            await client.sessions.create(SessionSpec(name="one", command=["true"], resources=small))

            async def ended() -> bool:
                return (await client.sessions.get("one")).status == "TERMINATED"

            await until("the session ends", ended)
            assert (await client.sessions.get("one")).reason == "exit-zero"
    finally:
        platform.close()
