"""The store on a Postgres, and a registration in an etcd, run by testcontainers, as users may do in their own
tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.etcd.access import EtcdAccess, EtcdError
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.registration import Registration, member_key
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store, migrate

from .engine import PrivateEngine
from .etcd_image import ETCD_IMAGE, import_etcd
from .postgres_image import POSTGRES_IMAGE, import_postgres, programs

# Read by testcontainers at import. Without these it would pull the image of its reaper, and mistake this
# machine for a container.
_ENV = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}


def use_engine(engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (_ENV | {"DOCKER_HOST": f"unix://{engine.socket}"}).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def etcd(docker_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if not import_etcd(docker_engine.socket, tmp_path):
        pytest.skip("Debian's package etcd-server is not installed: make test-etcd installs it")
    use_engine(docker_engine, monkeypatch)
    from testcontainers.core.container import DockerContainer

    with DockerContainer(ETCD_IMAGE).with_exposed_ports(2379) as container:
        yield f"http://127.0.0.1:{container.get_exposed_port(2379)}"


@pytest.fixture
def dsn(docker_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    bin_dir = programs()
    if bin_dir is None:
        pytest.skip("Debian's package postgresql is not installed")
    import_postgres(docker_engine.socket, tmp_path, bin_dir)
    use_engine(docker_engine, monkeypatch)
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


@pytest.mark.timeout(180)
async def test_registration_in_an_etcd_in_a_container(etcd: str) -> None:
    access = EtcdAccess((etcd,))
    async with EtcdClient(access) as client, asyncio.timeout(60):
        key = member_key(access, "proxies", "a")
        registration = Registration(client, key, lambda: {"url": "http://127.0.0.1:1"}, SystemClock())
        while True:
            try:
                await registration.refresh()
                break
            except EtcdError:
                await asyncio.sleep(0.1)
        assert set((await client.read(access.prefix)).entries) == {key}
        await registration.end()
        assert not (await client.read(access.prefix)).entries
