"""New hosts while etcd is away: they join by address, and do without etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common.model.status import AgentStatus
from tests.e2e.harness import Platform, until
from tests.etcd.servers import PREFIX, EtcdServers

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(180)]


async def test_a_new_agent_joins_by_address(
    home: Path, one: EtcdServers, empty_database: str
) -> None:
    platform = Platform(home / "manager")
    node = home / "node"
    for path in (platform.home, node):
        path.mkdir()

    platform.env |= {
        "MOORAGE_MANAGER__DSN": empty_database,
        "MOORAGE_COMMON__LINK_TLS": "on",
        "MOORAGE_ETCD__ADDRESS": one.address,
    }
    del platform.env["MOORAGE_AGENT__MANAGER"]
    platform.start("manager")

    try:

        async def is_registered() -> bool:
            return f"{PREFIX}managers/" in one.etcdctl("get", "--prefix", "--keys-only", PREFIX)

        await until("the manager is registered", is_registered)
        one.stop()
        created = platform.run("join-tokens", "create")
        assert created.returncode == 0, created.stderr
        platform.env["MOORAGE_HOME"] = str(node)
        joined = platform.run("agent", "join", platform.url, stdin=created.stdout)
        assert joined.returncode == 0, joined.stderr
        refused = platform.run("agent")
        assert refused.returncode == 1, refused
        assert "start etcd, or remove etcd.address" in refused.stderr
        del platform.env["MOORAGE_ETCD__ADDRESS"]
        platform.start("agent")

        async def is_alive() -> bool:
            async with platform.client() as client:
                return [agent.status for agent in await client.agents.list()] == [AgentStatus.ALIVE]

        await until("the agent is alive", is_alive)
    finally:
        platform.close()
