"""Agents and proxies spread over the managers: they move to one that joins, and running work is not
affected."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import manager_harness as h
import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from structlog.typing import EventDict
from test_lost_database import manager
from test_usage_wire import eventually
from tests.addresses import agent_ports, port_range

from moorage.agent import Agent
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings, CommonSettings, ProxySettings
from moorage.common.model.commands import ExecSpec
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import Status
from moorage.manager import Manager
from moorage.manager.rpc import spreading
from moorage.proxy import Proxy
from moorage.sdk import Client

pytestmark = pytest.mark.timeout(120)
NODES = ("node-1", "node-2", "node-3", "node-4")
PROXIES = ("edge-1", "edge-2")


def sleeper(node: str) -> SessionSpec:
    return SessionSpec(
        name=f"on-{node}",
        type="interactive",
        command=["sleep", "1000"],
        resources={"cpu": "0.1"},
        agents=[node],
    )


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "STEADY_S", 0.5)
    monkeypatch.setattr(spreading, "SETTLE_S", 1.5)


@pytest_asyncio.fixture
async def first(migrated_database: str, tmp_path: Path) -> AsyncIterator[Manager]:
    """A manager with four agents and two proxies, which know only its address."""
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(manager(migrated_database, tmp_path / "a", 0))
        clock = SystemClock()
        common = CommonSettings(home=tmp_path, link_tls="off")
        ports = agent_ports()
        for number, name in enumerate(NODES):
            settings = AgentSettings(
                id=name,
                manager=running.link_address,
                inventory="fake:1xH100",
                port_range=port_range(ports[10 * number : 10 * number + 10]),
                stop_kernels_on_exit=True,
            )
            agent = Agent(settings, common, clock=clock, link_token=h.TOKEN, home=tmp_path / name)
            await stack.enter_async_context(agent)

        for name in PROXIES:
            edge = ProxySettings(
                id=name,
                listen="127.0.0.1:0",
                internal_listen="127.0.0.1:0",
                manager=running.link_address,
            )
            await stack.enter_async_context(
                Proxy(
                    edge,
                    CommonSettings(home=tmp_path / name, link_tls="off"),
                    clock=clock,
                    link_token=h.TOKEN,
                )
            )

        yield running


async def test_agents_and_proxies_go_to_a_manager_that_comes(
    first: Manager, migrated_database: str, tmp_path: Path
) -> None:
    assert first.first_key is not None
    with capture_logs() as logs:
        await spread(first, migrated_database, tmp_path, logs)


async def spread(first: Manager, dsn: str, folder: Path, logs: list[EventDict]) -> None:
    async with Client(f"http://{first.api_address}", first.first_key) as client:
        shares: list[Counter[str | None]] = []

        async def links() -> Counter[str | None]:
            return Counter(agent.manager for agent in await client.agents.list())

        async def all_are_there() -> bool:
            proxies = [len(view.proxies) for view in await client.managers.list()]
            return await links() == {first.link_address: len(NODES)} and proxies == [len(PROXIES)]

        await eventually(all_are_there)
        for node in NODES:
            await client.sessions.create(sleeper(node))

        async def run() -> bool:
            found = await client.sessions.list()
            return [view.status for view in found] == [Status.RUNNING] * len(NODES)

        await eventually(run)

        def asked() -> bool:
            return any(
                (line["event"], line.get("kind")) == ("handing over", "agents") for line in logs
            )

        go = folder / "go"
        script = f"until test -e {go}; do sleep 0.1; done; echo done"
        async with (
            # The first agent that is asked is busy.
            client.sessions.exec(
                f"on-{NODES[0]}", ExecSpec(command=["sh", "-c", script])
            ) as command,
            asyncio.timeout(100),
            manager(dsn, folder / "b", 0) as second,
        ):

            async def is_spread() -> bool:
                shares.append(await links())
                found = {
                    view.link: (view.agents, len(view.proxies))
                    for view in await client.managers.list()
                }
                return found == {first.link_address: (2, 1), second.link_address: (2, 1)}

            while not asked():
                await asyncio.sleep(0.05)

            await asyncio.sleep(1)  # it checks every 0.2 s whether it may move
            assert (await client.agents.get(NODES[0])).manager == first.link_address
            go.touch()
            output = b""
            while (piece := await command.read()) is not None:
                output += piece[1]

            assert (output, command.end and command.end.exit_code) == (b"done\n", 0), (
                "it was not cut off"
            )
            await eventually(is_spread)

            # Nothing moves back: the counts stay the same.
            for _ in range(20):
                await asyncio.sleep(0.1)
                assert await is_spread()

            assert max(share[None] for share in shares) <= 2, (
                "few agents at a time are without a manager"
            )
            assert await run()
            assert {view.attempt for view in await client.sessions.list()} == {1}

        # Every peer now knows both managers, although it was configured with one.
        await eventually(all_are_there)
