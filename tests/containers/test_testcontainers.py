"""The store on a Postgres, and daemons on a Postgres and an etcd, run by testcontainers, as users
might run them in their own tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.etcd.access import EtcdAccess
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.registration import member_key
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager.identity.scope import Scope
from moorage.manager.store import Store, migrate
from tests.e2e.harness import Platform

from .engine import PrivateEngine
from .etcd_image import ETCD_IMAGE, import_etcd
from .postgres_image import POSTGRES_IMAGE, import_postgres, programs

# testcontainers reads these at import. Without these it would pull the image of its reaper, and
# mistake this machine for a container.
_ENV = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}


def use_engine(engine: PrivateEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (_ENV | {"DOCKER_HOST": f"unix://{engine.socket}"}).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def etcd(
    docker_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if not import_etcd(docker_engine.socket, tmp_path):
        pytest.skip("Debian's package etcd-server is not installed: make test-etcd installs it")
    use_engine(docker_engine, monkeypatch)
    from testcontainers.core.container import DockerContainer

    with DockerContainer(ETCD_IMAGE).with_exposed_ports(2379) as container:
        yield f"http://127.0.0.1:{container.get_exposed_port(2379)}"


@pytest.fixture
def dsn(
    docker_engine: PrivateEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    bin_dir = programs()
    if bin_dir is None:
        pytest.skip("Debian's package postgresql is not installed")

    import_postgres(docker_engine.socket, tmp_path, bin_dir)
    use_engine(docker_engine, monkeypatch)
    from testcontainers.community.postgres import PostgresContainer

    with PostgresContainer(
        POSTGRES_IMAGE, username="boss", password="s3cret", dbname="moorage"
    ) as postgres:
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
        # testcontainers checks from inside the container; the host's port may open a moment later.
        while not await is_reachable(dsn):
            await asyncio.sleep(0.1)

    await migrate(dsn)
    async with Store(dsn, SystemClock()) as store:
        session = await store.sessions.create(Scope.system("t"), SessionSpec(command=["true"]))
        assert (await store.sessions.get(Scope.system(), session.id)).status is Status.PENDING
        assert await store.integrity.check() == []


@pytest.mark.timeout(180)
async def test_manager_and_proxy_on_etcd_and_postgres_in_containers(
    etcd: str, dsn: str, home: Path
) -> None:
    """The manager is registered in etcd, the proxy finds it there, and both receive a shared
    setting."""
    async with asyncio.timeout(120):
        # testcontainers checks from inside the container; the host's port may open a moment later.
        while not await is_reachable(dsn):
            await asyncio.sleep(0.1)

        address = etcd.replace("http", "etcd", 1)
        platform = Platform(home)
        platform.env |= {
            "MOORAGE_MANAGER__DSN": dsn,
            "MOORAGE_ETCD__ADDRESS": address,
            "MOORAGE_PROXY__MANAGER": address,
            "MOORAGE_PROXY__ID": "door",
        }

        try:
            change = ("config", "set", "--etcd", "telemetry.accept_traceparent=false")
            while (done := platform.run(*change)).returncode:
                assert "etcd" in done.stderr, done.stderr
                await asyncio.sleep(0.2)

            platform.start("manager")
            platform.start("proxy")
            access = EtcdAccess((etcd,))
            members = {
                member_key(access, "managers", platform.link),
                member_key(access, "proxies", "door"),
            }
            async with EtcdClient(access) as client:
                while not members <= set((await client.read(access.prefix)).entries):
                    await asyncio.sleep(0.2)

            shown = json.loads(platform.run("config", "show", "--origin", "-o", "json").stdout)
            assert shown["telemetry.accept_traceparent"] == {"value": False, "origin": "etcd"}
            async with platform.client() as client:
                while [manager.proxies for manager in await client.managers.list()] != [["door"]]:
                    await asyncio.sleep(0.1)  # the manager reports it with its next heartbeat
        finally:
            platform.close()
