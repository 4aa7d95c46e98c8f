"""A full etcd: running work continues, changes are refused with a remedy, and the remedy works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.etcd.access import EtcdError
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.registration import EtcdRegistration, member_key
from tests.e2e.harness import Platform

from .conftest import running
from .servers import EtcdServers

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(180)]
QUOTA = 4 * 1024**2
FILLER = "x" * 100_000


@pytest.fixture
def small(home: Path) -> Iterator[EtcdServers]:
    yield from running(EtcdServers(home / "etcd", flags=("--quota-backend-bytes", str(QUOTA))))


async def fill(client: EtcdClient) -> str:
    """Write one key repeatedly, because etcd keeps all its versions. Returns why etcd accepts no
    more."""
    for _ in range(2 * QUOTA // len(FILLER)):
        try:
            await client.put("/of-somebody-else", FILLER)
        except EtcdError as error:
            return str(error)
    raise AssertionError("etcd was never full")


async def test_a_full_etcd_refuses_changes_and_keeps_what_it_has(
    home: Path, small: EtcdServers
) -> None:
    platform = Platform(home)
    platform.env["MOORAGE_ETCD__ADDRESS"] = small.address
    assert (
        platform.run("config", "set", "--etcd", "telemetry.accept_traceparent=false").returncode
        == 0
    )
    facts = {"link": "127.0.0.1:1"}
    async with EtcdClient(small.access) as client:
        before = EtcdRegistration(
            client, member_key(small.access, "managers", "a"), lambda: facts, SystemClock()
        )
        await before.refresh()
        assert "database space exceeded" in await fill(client)
        refused = platform.run("config", "set", "--etcd", "telemetry.accept_traceparent=true")
        assert refused.returncode != 0
        assert "database space exceeded" in refused.stderr
        assert "etcdctl alarm disarm" in refused.stderr
        assert [*(await client.health()).values()] == ["an alarm is raised, or it has no leader"]
        await before.refresh()  # its lease is kept alive
        later = EtcdRegistration(
            client, member_key(small.access, "agents", "b"), lambda: {}, SystemClock()
        )
        with pytest.raises(EtcdError, match="database space exceeded"):
            await later.refresh()

        shown = json.loads(platform.run("config", "show", "--origin", "-o", "json").stdout)
        assert shown["telemetry.accept_traceparent"] == {"value": False, "origin": "etcd"}

        # The remedy from the message.
        [status] = json.loads(small.etcdctl("endpoint", "status", "-w", "json"))
        small.etcdctl("compact", str(status["Status"]["header"]["revision"]))
        small.etcdctl("defrag")
        small.etcdctl("alarm", "disarm")
        assert [*(await client.health()).values()] == [""]
        await later.refresh()
        changed = platform.run("config", "set", "--etcd", "telemetry.accept_traceparent=true")
        assert changed.returncode == 0, changed.stderr
        found = await client.read("/moorage/")
        assert {
            member_key(small.access, "managers", "a"),
            member_key(small.access, "agents", "b"),
        } <= set(found.entries)
