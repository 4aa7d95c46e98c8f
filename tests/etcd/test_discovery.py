"""Daemons that find each other in etcd, and what continues without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.etcd.access import EtcdUnavailable
from moorage.common.etcd.client import EtcdClient
from moorage.common.etcd.registration import LEASE_S, EtcdRegistration, member_key
from moorage.common.model.status import AgentStatus
from tests.e2e.harness import Platform, until
from tests.etcd.servers import PASSWORD, PREFIX, USER, EtcdServers

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(300)]


SMALL = ("--resources", "cpu=0.1", "--resources", "mem=32MiB")


@pytest.fixture
def platform(home: Path, three: EtcdServers, empty_database: str) -> Iterator[Platform]:
    """A manager that is registered in etcd, and an agent and a proxy that have no other
    configuration. The agent waits only 30 s for its manager, and creating a Postgres can take that
    long on a busy machine."""
    path = home / "platform"
    path.mkdir()
    created = Platform(path)
    created.env |= {
        "MOORAGE_MANAGER__DSN": empty_database,
        "MOORAGE_ETCD__ADDRESS": three.address,
        "MOORAGE_ETCD__USER": USER,
        "MOORAGE_ETCD__PASSWORD": PASSWORD,
        "MOORAGE_ETCD__CA": str(three.home / "ca.crt"),
        "MOORAGE_AGENT__MANAGER": three.address,
        "MOORAGE_PROXY__MANAGER": three.address,
    }
    yield created
    created.close()


def members(servers: EtcdServers) -> dict[str, dict[str, str]]:
    found = servers.etcdctl("get", "--prefix", PREFIX, user=servers.root).splitlines()
    return {key: json.loads(value) for key, value in zip(found[::2], found[1::2], strict=True)}


async def agent_status(platform: Platform) -> AgentStatus | None:
    async with platform.client() as client:
        return next((agent.status for agent in await client.agents.list()), None)


@pytest.mark.smoke
async def test_daemons_meet_in_etcd_and_live_without_it(
    platform: Platform, three: EtcdServers
) -> None:
    platform.start("agent")  # before its manager, so it waits
    platform.start("manager")
    platform.start("proxy")

    async def all_registered() -> bool:
        return len(members(three)) == 3

    await until("all three are registered", all_registered)
    found = members(three)
    manager, agent, proxy = (
        next(value for key, value in found.items() if key.startswith(f"{PREFIX}{kind}/"))
        for kind in ("managers", "agents", "proxies")
    )
    assert manager["link"] == platform.link
    assert manager["url"] == platform.url
    assert f"{proxy['url']}/v1" == platform.openai_url
    assert agent["resource_group"] == "default"

    async def is_alive() -> bool:
        return await agent_status(platform) is AgentStatus.ALIVE

    await until("the agent is alive", is_alive)
    three.stop()
    ran = platform.run("run", *SMALL, "--", "echo", "without etcd")
    assert "without etcd" in ran.stdout, ran.stderr
    platform.kill("agent")
    platform.start("agent")  # through the managers that it found before

    async def says_so() -> bool:
        return "using the managers found before" in platform.output("agent")

    await until("it uses what it knew", says_so)
    ran = platform.run("run", *SMALL, "--", "echo", "again")
    assert "again" in ran.stdout, ran.stderr
    for one in three.members:
        three.start_member(one)

    three.wait_until_healthy()
    await until("all three are registered again", all_registered)
    platform.stop("manager")
    assert not any(key.startswith(f"{PREFIX}managers/") for key in members(three))


async def test_a_lost_lease_is_replaced(one: EtcdServers) -> None:
    async with EtcdClient(one.access) as client:
        facts = {"link": "127.0.0.1:1"}
        key = member_key(one.access, "managers", "a")
        registration = EtcdRegistration(client, key, lambda: facts, SystemClock())
        await registration.refresh()
        lease = one.etcdctl("lease", "list").split()[-1]
        one.etcdctl("lease", "revoke", lease)
        assert members(one) == {}
        await registration.refresh()
        assert members(one) == {key: facts}
        facts["link"] = "127.0.0.1:2"
        await registration.refresh()
        assert members(one) == {key: facts}
        await registration.end()
        assert members(one) == {}


async def test_a_key_that_was_deleted_or_changed_is_restored(one: EtcdServers) -> None:
    async with EtcdClient(one.access) as client:
        facts = {"link": "127.0.0.1:1"}
        key = member_key(one.access, "managers", "a")
        registration = EtcdRegistration(client, key, lambda: facts, SystemClock())
        await registration.refresh()

        for command in (("del", key), ("put", key, '{"link": "127.0.0.1:2"}')):
            one.etcdctl(*command)
            await registration.refresh()
            assert members(one) == {key: facts}, command

        await registration.end()
        assert members(one) == {}


class LosingReplies(EtcdClient):
    """While ``is_losing``, etcd applies writes, but the reply does not arrive."""

    is_losing = False

    async def put(self, key: str, value: str, lease: str = "") -> None:
        await super().put(key, value, lease)
        if self.is_losing:
            raise EtcdUnavailable("the reply was lost")


@pytest.mark.parametrize("reads_back", [True, False])
async def test_a_write_whose_reply_was_lost_is_undone(one: EtcdServers, reads_back: bool) -> None:
    async with LosingReplies(one.access) as client:
        facts = {"link": "127.0.0.1:1"}
        key = member_key(one.access, "managers", "a")
        registration = EtcdRegistration(
            client, key, lambda: facts, SystemClock(), reads_back=reads_back
        )
        await registration.refresh()
        client.is_losing = True
        facts["link"] = "127.0.0.1:2"
        with pytest.raises(EtcdUnavailable, match="the reply was lost"):
            await registration.refresh()

        assert members(one) == {key: facts}
        client.is_losing = False
        facts["link"] = "127.0.0.1:1"
        await registration.refresh()
        assert members(one) == {key: facts}


async def test_the_key_of_a_dead_daemon_expires(one: EtcdServers) -> None:
    async with EtcdClient(one.access) as client:
        key = member_key(one.access, "proxies", "a")
        await EtcdRegistration(client, key, lambda: {}, SystemClock()).refresh()
        async with asyncio.timeout(LEASE_S + 60):
            while members(one):
                await asyncio.sleep(0.2)
