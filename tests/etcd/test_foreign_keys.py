"""An etcd that also contains foreign keys: another installation below the same prefix, and text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.status import AgentStatus
from tests.e2e.harness import Platform, until

from .servers import PREFIX, EtcdServers

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(180)]


def platform_at(home: Path, etcd: EtcdServers) -> Platform:
    home.mkdir()
    created = Platform(home)
    created.env |= {"MOORAGE_ETCD__ADDRESS": etcd.address, "MOORAGE_AGENT__MANAGER": etcd.address}
    return created


@pytest.fixture
def ours(home: Path, one: EtcdServers) -> Iterator[Platform]:
    created = platform_at(home / "ours", one)
    yield created
    created.close()


@pytest.fixture
def others(home: Path, one: EtcdServers) -> Iterator[Platform]:
    created = platform_at(home / "others", one)
    yield created
    created.close()


def links(etcd: EtcdServers) -> set[str]:
    keys = etcd.etcdctl("get", "--prefix", "--keys-only", f"{PREFIX}managers/").split()
    return {key.removeprefix(f"{PREFIX}managers/") for key in keys}


async def test_an_agent_joins_its_own_installation(
    one: EtcdServers, ours: Platform, others: Platform
) -> None:
    """Every address registered below the prefix is dialed, and the daemon leaves a manager that
    does not have the secret."""
    for name, text in {
        "a": "not JSON",
        "b": '{"link": 7}',
        "c": '{"link": "nowhere"}',
        "d": "[]",
    }.items():
        one.etcdctl("put", f"{PREFIX}managers/{name}", text)

    for platform in (others, ours):
        platform.start("manager")
        await platform.wait_until_ready()

    async def both_registered() -> bool:
        return {ours.link, others.link} <= links(one)

    await until("both managers are registered", both_registered)
    ours.start("agent")

    async def alive() -> bool:
        async with ours.client() as client:
            return [agent.status for agent in await client.agents.list()] == [AgentStatus.ALIVE]

    await until("the agent is alive", alive)
    async with others.client() as client:
        assert await client.agents.list() == []

    checks = json.loads(ours.run("doctor", "--cluster", "-o", "json").stdout)
    found = [check["detail"] for check in checks if check["name"] == "etcd"]
    assert any(others.link in detail and ours.link not in detail for detail in found), found
    assert "Traceback" not in ours.output("agent")
