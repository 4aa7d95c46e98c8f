"""A manager that loses the database while another manager still has it: agents and proxies move to
the other one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.addresses import free_port

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.aio.tasks import spawn
from moorage.common.config.settings import (
    AgentSettings,
    CommonSettings,
    ManagerSettings,
    ProxySettings,
)
from moorage.manager import Manager
from moorage.proxy import Proxy
from moorage.sdk import Client

TOKEN = "link-secret"
pytestmark = pytest.mark.timeout(120)


class Relay:
    """A path to Postgres that can be cut."""

    def __init__(self, dsn: str) -> None:
        self._target = urlsplit(dsn)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.dsn = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._target.netloc.rpartition("@")[0]
        self.dsn = urlunsplit(self._target._replace(netloc=f"{user}@127.0.0.1:{port}"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._writers |= {writer, back}
        copies = spawn("relay.up", copy(reader, back)), spawn("relay.down", copy(there, writer))
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, back):
            one.close()

    def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass


@asynccontextmanager
async def manager(dsn: str, home: Path, link: int) -> AsyncIterator[Manager]:
    settings = ManagerSettings(dsn=dsn, listen="127.0.0.1:0", link_listen=f"127.0.0.1:{link}")
    home.mkdir()
    async with Manager(
        settings, clock=SystemClock(), link_token=TOKEN, home=home, link_tls="off"
    ) as running:
        yield running


async def test_agents_and_proxies_go_to_a_manager_that_has_its_database(
    migrated_database: str, tmp_path: Path
) -> None:
    relay = Relay(migrated_database)
    clock = SystemClock()
    await relay.open()
    ports = free_port(), free_port()
    both = ",".join(f"127.0.0.1:{port}" for port in ports)
    common = CommonSettings(home=tmp_path, link_tls="off")
    agent_settings = AgentSettings(id="node-1", manager=both, inventory="fake:1xH100")
    proxy_settings = ProxySettings(
        listen="127.0.0.1:0", internal_listen="127.0.0.1:0", manager=both
    )
    async with manager(relay.dsn, tmp_path / "a", ports[0]) as first:
        assert first.first_key is not None
        async with (
            # Both connect to the only existing manager.
            Agent(agent_settings, common, clock=clock, link_token=TOKEN),
            Proxy(proxy_settings, common, clock=clock, link_token=TOKEN),
            Client(f"http://{first.api_address}", first.first_key) as client,
        ):
            await connected_to(client, first)
            async with (
                manager(migrated_database, tmp_path / "b", ports[1]) as second,
                Client(f"http://{second.api_address}", first.first_key) as other,
            ):
                assert (await other.agents.get("node-1")).manager == first.link_address
                relay.cut()
                await connected_to(other, second)


async def connected_to(client: Client, manager: Manager) -> None:
    async with asyncio.timeout(60):
        while True:
            agents = [a.manager for a in await client.agents.list()]
            if agents == [manager.link_address]:
                return
            await asyncio.sleep(0.1)
