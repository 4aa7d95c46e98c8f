"""An etcd that requires client certificates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.common.etcd.access import EtcdAccess, EtcdError, EtcdUnavailable
from moorage.common.etcd.client import EtcdClient
from tests.etcd.conftest import running
from tests.etcd.servers import PREFIX, EtcdServers

pytestmark = pytest.mark.etcd


@pytest.fixture(params=[False, True], ids=["without users", "with users"])
def servers(home: Path, request: pytest.FixtureRequest) -> Iterator[EtcdServers]:
    yield from running(
        EtcdServers(home / "etcd", tls=True, client_certificates=True, users=request.param)
    )


async def write(access: EtcdAccess) -> str:
    async with EtcdClient(access) as client:
        await client.put(f"{PREFIX}a", "1")
        assert list((await client.health()).values()) == [""]
        return await client.value(f"{PREFIX}a")


async def test_a_client_needs_its_certificate(servers: EtcdServers) -> None:
    assert await write(servers.access) == "1"
    with pytest.raises(EtcdUnavailable, match=r"set etcd\.certificate and etcd\.key"):
        await write(replace(servers.access, certificate=None, key=None))


async def test_a_certificate_with_a_name_is_none_of_a_user(servers: EtcdServers) -> None:
    named = replace(
        servers.access,
        certificate=servers.home / "client-named.crt",
        key=servers.home / "client-named.key",
    )
    if not servers.users:
        assert await write(named) == "1"
        return

    for access in (named, replace(named, user="", password="")):
        with pytest.raises(EtcdError, match=r"use an etcd\.certificate without a common name"):
            await write(access)


async def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    for name in ("absent", "text"):
        access = EtcdAccess(
            ("https://127.0.0.1:1",), certificate=tmp_path / name, key=tmp_path / name
        )
        with pytest.raises(EtcdError, match=r"check etcd\.ca, etcd\.certificate and etcd\.key"):
            await write(access)
