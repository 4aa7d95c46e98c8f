"""Links without TLS on one host: the link token is sent only to the state directory's manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import agent_harness as h
import grpc
import pytest
import pytest_asyncio
from manager_harness import attach
from structlog.testing import capture_logs

from moorage.agent import Agent
from moorage.agent.dialout.client import DialOut
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import (
    AgentSettings,
    CommonSettings,
    ManagerSettings,
    ProxySettings,
)
from moorage.common.link.dial import Dialer, dialer_for
from moorage.common.link.local import proven_target
from moorage.common.link.pb import agent_pb2_grpc, peers_pb2_grpc
from moorage.common.local.listening import reserved
from moorage.common.local.paths import socket_path
from moorage.common.model.errors import ConfigError
from moorage.manager import Manager
from moorage.manager.store.platform.backups import cluster_facts
from moorage.proxy import Proxy
from moorage.sdk import Client


class Squatter:
    """A foreign program on the port of a manager's link. ``heard``: the data sent there."""

    def __init__(self) -> None:
        self.heard = b""
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Squatter:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += b"(connected)"
        while data := await reader.read(65536):
            self.heard += data
        writer.close()

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest_asyncio.fixture
async def squatter() -> AsyncIterator[Squatter]:
    async with Squatter() as taken:
        yield taken


@pytest.fixture(params=["", "long-" * 30], ids=["short", "long"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Also one with socket paths that are longer than the system allows."""
    made = tmp_path / "home" / request.param
    made.mkdir(parents=True, mode=0o711)
    return made


@asynccontextmanager
async def served_at(manager: h.FakeManager, path: Path) -> AsyncIterator[None]:
    """A manager that listens only on this socket."""
    with reserved(path) as short:
        server = grpc.aio.server()
        agent_pb2_grpc.add_AgentLinkServicer_to_server(manager, server)
        peers_pb2_grpc.add_PeersServicer_to_server(manager, server)
        server.add_insecure_port(f"unix:{short}")
        await server.start()
        yield
        await server.stop(grace=0)


async def until_logged(logs: list[Any], event: str, cause: str) -> None:
    async with asyncio.timeout(20):
        while not any(entry["event"].startswith(event) and cause in str(entry) for entry in logs):
            await asyncio.sleep(0.02)


async def plain_senders(dsn: str) -> dict[str, list[str]]:
    """As read by `moorage doctor --cluster`."""
    [manager] = (await cluster_facts(dsn))["managers"]
    found: dict[str, list[str]] = manager["plain_senders"]
    return found


async def until_told(dsn: str, senders: dict[str, list[str]]) -> None:
    async with asyncio.timeout(20):
        while await plain_senders(dsn) != senders:
            await asyncio.sleep(0.1)


def make_agent(target: str, home: Path, link_tls: str = "auto") -> Agent:
    settings = AgentSettings(id="one", inventory="fake:1xL4", manager=target)
    common = CommonSettings(link_tls=link_tls)  # type: ignore[arg-type]
    return Agent(settings, common, clock=h.CLOCK, link_token=h.TOKEN, home=home)


def make_proxy(target: str, home: Path) -> Proxy:
    settings = ProxySettings(
        listen="127.0.0.1:0", internal_listen="127.0.0.1:0", id="edge", manager=target
    )
    return Proxy(settings, CommonSettings(home=home), clock=h.CLOCK, link_token=h.TOKEN, home=home)


async def test_whoever_took_the_port_of_the_link_gets_nothing(
    squatter: Squatter, home: Path
) -> None:
    """The manager is down: agent and proxy report what they wait for, and continue when it is
    back."""
    path = socket_path(home, "link", squatter.port)
    manager = h.FakeManager()
    manager.order()

    with capture_logs() as logs:
        async with make_agent(squatter.target, home), make_proxy(squatter.target, home):
            await until_logged(logs, "not connected to the manager", f"listens at {path}")
            await until_logged(logs, "no route feed from the manager", f"listens at {path}")
            async with served_at(manager, path):
                await manager.wait_for_report(lambda _: True)

    assert squatter.heard == b""


async def test_link_that_is_told_to_trust_this_host_goes_to_whoever_listens(
    squatter: Squatter, tmp_path: Path
) -> None:
    async with make_agent(squatter.target, tmp_path, link_tls="off"), asyncio.timeout(20):
        while not squatter.heard:
            await asyncio.sleep(0.02)


async def test_an_agent_with_a_home_of_its_own_is_told_that_of_the_manager(
    squatter: Squatter, tmp_path: Path
) -> None:
    for name in ("agent", "manager"):
        (tmp_path / name).mkdir()

    manager = h.FakeManager()
    manager.order()
    settings = AgentSettings(id="one", inventory="fake:1xL4", manager=squatter.target)
    common = CommonSettings(manager_home=tmp_path / "manager")
    async with (
        served_at(manager, socket_path(tmp_path / "manager", "link", squatter.port)),
        Agent(settings, common, clock=h.CLOCK, link_token=h.TOKEN, home=tmp_path / "agent"),
    ):
        await manager.wait_for_report(lambda _: True)

    assert squatter.heard == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_doctor_and_other_calls_go_to_no_one_else(
    squatter: Squatter, tmp_path: Path, host: str
) -> None:
    target = f"{host}:{squatter.port}"
    dialer = dialer_for(
        "agent", "one", target, link_tls="auto", token=h.TOKEN, home=tmp_path, clock=h.CLOCK
    )
    with pytest.raises(ConfigError, match="cannot prove that it is a manager"):
        await dialer.hello(5.0)

    assert not await dialer.prefer(target, 5.0)
    await dialer.maintain()
    assert squatter.heard == b""


async def test_no_proxy_is_dialed_without_tls(squatter: Squatter, tmp_path: Path) -> None:
    """Agents that dial out would send the link token to whichever program has its port."""
    dialer = dialer_for(
        "agent", "one", "127.0.0.1:1", link_tls="auto", token=h.TOKEN, home=tmp_path, clock=h.CLOCK
    )
    agent = DialOut("one", "127.0.0.1", lambda _: False, dialer, clock=h.CLOCK)
    agent.set_proxies([squatter.target])
    async with asyncio.timeout(20):
        while "require TLS" not in agent.undialed.get(squatter.target, ""):
            await asyncio.sleep(0.02)

    await agent.close()
    assert squatter.heard == b""


def test_other_hosts_are_dialed_as_they_are(tmp_path: Path) -> None:
    assert proven_target(tmp_path, "192.0.2.1:8701") == "192.0.2.1:8701"


async def test_a_manager_and_its_node_over_the_sockets(migrated_database: str, home: Path) -> None:
    """A real manager: its agent is on the same host, like an agent over loopback, and nothing of it
    remains after a stop."""
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
    )
    async with Manager(settings, clock=SystemClock(), link_token=h.TOKEN, home=home) as manager:
        assert manager.first_key is not None
        dialer = dialer_for(
            "agent", "one", manager.link_address, link_tls="auto", token=h.TOKEN, home=home,
            clock=SystemClock(),
        )  # fmt: skip
        async with (
            Client(f"unix://{manager.api_socket}", manager.first_key) as client,
            attach(manager, dialer=dialer) as stream,
        ):
            await stream.next()
            [agent] = await client.agents.list()
            assert (agent.id, agent.address, agent.status) == ("node-1", "127.0.0.1", "ALIVE")
            assert await plain_senders(migrated_database) == {}
            async with Client(f"http://{manager.api_address}", manager.first_key) as plain:
                await plain.agents.list()

            old = Dialer(manager.link_address, token=h.TOKEN, clock=SystemClock())
            async with attach(manager, "node-2", dialer=old) as stream_of_before:
                await stream_of_before.next()
                await until_told(migrated_database, {"agents": ["node-2"], "keys": ["admin"]})
            async with attach(manager, "node-2", dialer=dialer) as upgraded:
                await upgraded.next()
                await until_told(migrated_database, {"keys": ["admin"]})

        names = {path.name for path in (home / "run").iterdir()}
        port = manager.link_address.rpartition(":")[2]
        assert {f"link-{port}.sock", Path(manager.api_socket).name} < names

    assert [path.suffix for path in (home / "run").iterdir()] == [".lock", ".lock"]


async def test_a_manager_of_before_does_not_get_the_token_of_another(
    migrated_database: str, squatter: Squatter, tmp_path: Path
) -> None:
    """The database names a killed manager, and a foreign program has its port."""
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0"
    )
    killed = settings.model_copy(update={"link_address": squatter.target})
    async with AsyncExitStack() as stack:
        for chosen, name in ((killed, "one"), (settings, "two")):
            home = tmp_path / name
            home.mkdir()
            manager = Manager(chosen, clock=SystemClock(), link_token=h.TOKEN, home=home)
            await stack.enter_async_context(manager)

    assert squatter.heard == b""


def test_a_link_over_a_socket_needs_a_directory_of_the_manager(tmp_path: Path) -> None:
    """Anyone who can write to it could have put another socket there."""
    dialer = Dialer("127.0.0.1:8701", token="t", home=tmp_path, clock=SystemClock())
    with reserved(socket_path(tmp_path, "link", 8701)):
        (tmp_path / "run").chmod(0o777)
        with pytest.raises(ConfigError, match="others may write to"):
            dialer.channel(())
