"""Two installations with the same link token, without TLS: members of one are not led by the
other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import manager_harness as h
import pytest
import pytest_asyncio
from manager_harness import manager as manager
from proxy_harness import until
from structlog.testing import capture_logs
from structlog.typing import EventDict
from tests.addresses import agent_ports, port_range
from tests.databases import new_database

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import (
    AgentSettings,
    CommonSettings,
    ManagerSettings,
    ProxySettings,
)
from moorage.common.link.dial import dialer_for
from moorage.common.model.errors import ConfigError
from moorage.manager import Manager
from moorage.proxy import Proxy
from moorage.sdk import Client

pytestmark = pytest.mark.timeout(120)
CLOCK = SystemClock()


@pytest_asyncio.fixture
async def other(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Manager]:
    """A manager of another installation."""
    home = tmp_path / "other"
    home.mkdir()
    async with new_database(postgres_dsn) as dsn:
        settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
        async with Manager(
            settings, clock=CLOCK, link_token=h.TOKEN, home=home, link_tls="off"
        ) as running:
            yield running


def agent(home: Path, manager: str) -> Agent:
    ports = port_range(agent_ports())
    settings = AgentSettings(
        id="node-1", manager=manager, inventory="fake:1xH100", port_range=ports
    )
    return Agent(
        settings,
        CommonSettings(home=home, link_tls="off"),
        clock=CLOCK,
        link_token=h.TOKEN,
        home=home,
    )


def proxy(home: Path, manager: str) -> Proxy:
    settings = ProxySettings(
        id="edge-1", listen="127.0.0.1:0", internal_listen="127.0.0.1:0", manager=manager
    )
    return Proxy(
        settings, CommonSettings(home=home, link_tls="off"), clock=CLOCK, link_token=h.TOKEN
    )


async def agents_of(manager: Manager) -> list[str]:
    async with Client(f"http://{manager.api_address}", manager.first_key) as client:
        return [one.id for one in await client.agents.list()]


def says(logs: list[EventDict], event: str) -> Callable[[], bool]:
    return lambda: any(line["event"] == event for line in logs)


def refusals(logs: list[EventDict]) -> list[str]:
    causes = (str(line.get("why") or line.get("cause")) for line in logs)
    return [cause for cause in causes if "belongs to installation" in cause]


async def test_an_agent_is_not_led_by_another_installation(
    manager: Manager, other: Manager, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with agent(tmp_path, manager.link_address):
            await until(says(logs, "connected to the manager"), 30)

    kept = tmp_path / "joined" / "agent-node-1.installation"
    with capture_logs() as logs:
        async with agent(tmp_path, other.link_address):
            await until(lambda: refusals(logs), 30)
            assert await agents_of(other) == []
            (why,) = refusals(logs)
            assert other.link_address in why
            assert json.loads(kept.read_text())["installation"] in why
            assert f"remove {kept}" in why
            assert not says(logs, "connected to the manager")()
            kept.unlink()  # deliberately
            await until(says(logs, "connected to the manager"), 30)

    assert await agents_of(other) == ["node-1"]


async def test_a_proxy_is_not_led_by_another_installation(
    manager: Manager, other: Manager, tmp_path: Path
) -> None:
    async with proxy(tmp_path, manager.link_address) as running:
        table = tmp_path / "proxy-edge-1" / "routes.json"
        await until(lambda: running.ready and table.exists(), 30)

    saved = table.read_bytes()
    kept = tmp_path / "joined" / "proxy-edge-1.installation"
    with capture_logs() as logs:
        async with proxy(tmp_path, other.link_address):
            await until(lambda: refusals(logs), 30)
            assert f"remove {kept}" in refusals(logs)[0]
            assert not says(logs, "route feed connected")()
            assert table.read_bytes() == saved
            kept.unlink()
            await until(says(logs, "route feed connected"), 30)


async def test_an_address_of_another_installation_is_passed_over(
    manager: Manager, other: Manager, tmp_path: Path
) -> None:
    """This also holds if a manager asks a peer to move there, and the doctor reports the
    problem."""
    both = f"{manager.link_address},{other.link_address}"
    for addresses in (manager.link_address, both):
        with capture_logs() as logs:
            async with agent(tmp_path, addresses):
                await until(says(logs, "connected to the manager"), 30)

    assert await agents_of(other) == []
    dialer = dialer_for(
        "agent", "node-1", both, link_tls="off", token=h.TOKEN, home=tmp_path, clock=CLOCK
    )
    assert not await dialer.prefer(other.link_address, 10.0)
    assert await dialer.prefer(manager.link_address, 10.0)
    with pytest.raises(ConfigError, match="belongs to installation"):
        await dialer.hello(10.0, other.link_address)

    assert await dialer.hello(10.0, manager.link_address)
