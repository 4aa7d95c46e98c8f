"""Hosts whose clocks differ by a minute: nothing depends on it, and `moorage doctor` reports it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import AgentStatus
from moorage.sdk import Client
from tests.addresses import free_port
from tests.e2e.harness import Platform, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
SMALL = {"cpu": "0.1", "mem": "32MiB"}


def clock(offset: str) -> dict[str, str]:
    """The environment of a process whose clock differs. Durations are unaffected."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    if library is None:
        pytest.skip("faketime is not installed: make test-cluster installs it")
    faked = {"FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_DISABLE_SHM": "1"}
    return {"LD_PRELOAD": str(library)} | faked


@pytest.fixture
def platform(home: Path, empty_database: str) -> Iterator[Platform]:
    running = Platform(home)
    running.env |= {
        "MOORAGE_MANAGER__DSN": empty_database,
        "MOORAGE_AGENT__INVENTORY": "fake:1xH100",
    }
    yield running
    running.close()


async def test_clocks_a_minute_apart_cost_nothing(platform: Platform) -> None:
    """The first manager's clock is a minute ahead of the database, and the agent's a minute behind;
    then the first manager is killed."""
    api = f"127.0.0.1:{free_port()}"
    link = f"127.0.0.1:{free_port()}"
    platform.env["MOORAGE_AGENT__MANAGER"] += f",{link}"
    platform.start("manager", env=clock("+60s"))
    await platform.wait_until_ready()
    second = {"MOORAGE_MANAGER__LISTEN": api, "MOORAGE_MANAGER__LINK_LISTEN": link}
    platform.start("manager", env=second, known_as="second")
    platform.start("agent", env=clock("-60s"))

    async def runs(client: Client, name: str) -> None:
        spec = SessionSpec(name=name, command=["sh", "-c", "exit 0"], resources=SMALL, timeout_s=30)
        await client.sessions.create(spec)

        async def ended() -> bool:
            return (await client.sessions.get(name)).status == "TERMINATED"

        await until(f"{name} ends", ended)
        assert (await client.sessions.get(name)).reason == "exit-zero"

    async with platform.client() as client:
        await runs(client, "first")
        checks = json.loads(platform.run("doctor", "--cluster", "-o", "json").stdout)
        [found] = [check for check in checks if check["name"] == "clocks"]
        assert found["status"] != "ok", found

    platform.kill("manager")
    async with Client(f"http://{api}", platform.key) as client:
        await runs(client, "second")
        [agent] = await client.agents.list()
        assert agent.status is AgentStatus.ALIVE
