"""The store on a Postgres run by testcontainers, as users may do in their own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store, migrate

from .engine import PrivateEngine
from .postgres_image import POSTGRES_IMAGE, import_postgres, programs

# Read by testcontainers at import. Without these it would pull the image of its reaper, and mistake this
# machine for a container.
_ENV = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}


@pytest.fixture
def dsn(docker_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    bin_dir = programs()
    if bin_dir is None:
        pytest.skip("Debian's package postgresql is not installed")
    import_postgres(docker_engine.socket, tmp_path, bin_dir)
    for name, value in (_ENV | {"DOCKER_HOST": f"unix://{docker_engine.socket}"}).items():
        monkeypatch.setenv(name, value)
    from testcontainers.community.postgres import PostgresContainer

    with PostgresContainer(POSTGRES_IMAGE, username="boss", password="s3cret", dbname="moorage") as postgres:
        yield postgres.get_connection_url(driver=None)


async def is_reachable(dsn: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


@pytest.mark.timeout(180)
async def test_store_on_postgres_in_a_container(dsn: str) -> None:
    assert "s3cret" in dsn
    async with asyncio.timeout(60):
        # testcontainers asks from inside of the container; the port of the host may open a moment later.
        while not await is_reachable(dsn):
            await asyncio.sleep(0.1)
    await migrate(dsn)
    async with Store(dsn, SystemClock()) as store:
        session = await store.sessions.create(Scope.system("t"), SessionSpec(command=["true"]))
        assert (await store.sessions.get(Scope.system(), session.id)).status is Status.PENDING
        assert await store.integrity.check() == []
