"""All-in-one mode: everything that is reported as up can be used at once."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from manager_harness import TOKEN
from structlog.testing import capture_logs
from tests.addresses import agent_ports, free_port, port_range
from tests.relay import relay_to

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import (
    AgentSettings,
    CommonSettings,
    ManagerSettings,
    ProxySettings,
    Settings,
)
from moorage.common.model.status import AgentStatus
from moorage.sdk import Client
from moorage.server import all_in_one
from moorage.server.all_in_one import AllInOne, single_node_settings


def settings_at(dsn: str, home: Path, link: str) -> Settings:
    ports = port_range(agent_ports())
    return Settings(
        common=CommonSettings(home=home, link_tls="off"),
        manager=ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen=link),
        agent=AgentSettings(id="node", inventory="fake:1xH100", docker="off", port_range=ports),
        proxy=ProxySettings(listen="127.0.0.1:0", internal_listen="127.0.0.1:0", id="edge"),
    )


async def test_agent_and_proxy_are_connected_once_it_is_up(
    migrated_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If `moorage serve` was run at once, it did not explain how to install vLLM, because the
    manager had no node yet."""
    link = f"127.0.0.1:{free_port()}"
    settings = settings_at(migrated_database, tmp_path, link)
    async with relay_to(link) as relay:
        relay.delay_s = 0.3
        monkeypatch.setattr(
            all_in_one,
            "single_node_settings",
            lambda given, _: single_node_settings(given, relay.address),
        )
        component = AllInOne(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path)
        async with component as running, Client(running.url, running.first_key or "") as client:
            agents = [(one.id, one.status) for one in await client.agents.list()]
            assert agents == [("node", AgentStatus.ALIVE)]
            bearer = {"Authorization": f"Bearer {running.first_key}"}
            async with (
                aiohttp.ClientSession(headers=bearer) as http,
                http.get(f"{running.openai_url}/models") as answer,
            ):
                assert answer.status == 200


async def test_it_is_up_although_its_agent_cannot_connect(
    migrated_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_in_one, "CONNECT_S", 0.1)
    monkeypatch.setattr(
        all_in_one,
        "single_node_settings",
        lambda given, _: single_node_settings(given, "127.0.0.1:1"),
    )
    settings = settings_at(migrated_database, tmp_path, "127.0.0.1:0")
    component = AllInOne(settings, clock=SystemClock(), link_token=TOKEN, home=tmp_path)
    with capture_logs() as logs:
        async with component as running, Client(running.url, running.first_key or "") as client:
            assert await client.agents.list() == []

    assert "not connected yet: its agent and its proxy" in [line["event"] for line in logs]
