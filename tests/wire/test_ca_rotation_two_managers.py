"""Rotation of the CA while two managers are live, each with an agent and a proxy: all of them reach
each other at every step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
from manager_harness import attach
from peer_harness import Site, SkewedClock, open_site
from test_ca_rotation import rotate_ca, stored

from moorage.common.config.settings import ManagerSettings
from moorage.common.link import codec
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.link.pb import (
    agent_pb2,
    peers_pb2,
    peers_pb2_grpc,
    routes_pb2,
    routes_pb2_grpc,
)
from moorage.manager import Manager
from moorage.sdk import Client

SESSION = "01a20000-0000-7000-8000-000000000000"
AGENTS = ("node-1", "node-2")
PROXIES = ("front", "back")


@asynccontextmanager
async def another(site: Site, clock: SkewedClock) -> AsyncIterator[Site]:
    """A second manager over the same database, with the CA secret as copied by an administrator."""
    home = site.home / "second"
    home.mkdir()
    (home / "ca-secret").write_text((site.home / "ca-secret").read_text())
    settings = ManagerSettings(dsn=site.dsn, listen="127.0.0.1:0", link_listen="127.0.0.1:0")
    async with Manager(
        settings, clock=clock, link_token="unused", home=home, link_tls="on"
    ) as manager:
        key = (site.home / "admin-key").read_text().strip()
        async with Client(f"http://{manager.api_address}", key) as client:
            yield replace(site, manager=manager, client=client)


async def answer_requests(stream: Any) -> str:
    """Answer as an agent until the manager ends the stream. Returns the reason."""
    try:
        while (wire := await stream.call.read()) is not grpc.aio.EOF:
            message = codec.manager_message_from_wire(wire)
            if isinstance(message, WorkspaceRequest):
                kept = agent_pb2.Workspace(session_id=SESSION, size=1)
                answer = agent_pb2.WorkspaceAnswer(request_id=message.request_id, workspaces=[kept])
                await stream.stub.SendWorkspaces(answer)
    except grpc.aio.AioRpcError:
        pass

    return str(await stream.call.details())


async def follow_routes(dialer: Dialer, name: str) -> str:
    """Follow the routes as a proxy until the manager ends the call. Returns the reason."""
    async with dialer.channel(()) as channel:
        call = routes_pb2_grpc.RouteFeedStub(channel).Watch(routes_pb2.WatchRequest(proxy_id=name))
        try:
            while await call.read() is not grpc.aio.EOF:
                pass
        except grpc.aio.AioRpcError:
            pass
        return str(await call.details())


@dataclass
class Cluster:
    """``links``: the links of an agent and a proxy to each manager."""

    sites: tuple[Site, Site]
    links: list[asyncio.Task[str]] = field(default_factory=list)

    @property
    def dialers(self) -> list[Dialer]:
        agents = [
            s.dialer(name, target=s.manager.link_address)
            for s, name in zip(self.sites, AGENTS, strict=True)
        ]
        proxies = [
            s.dialer(name, kind="proxy", target=s.manager.link_address)
            for s, name in zip(self.sites, PROXIES, strict=True)
        ]
        return [*agents, *proxies]

    async def connect(self, stack: AsyncExitStack, incarnation: str) -> None:
        agents = self.dialers[:2]
        proxies = self.dialers[2:]
        for site, name, dialer in zip(self.sites, AGENTS, agents, strict=True):
            stream = await stack.enter_async_context(
                attach(site.manager, name, dialer=dialer, incarnation=incarnation)
            )
            self.links.append(asyncio.create_task(answer_requests(stream)))
        for name, dialer in zip(PROXIES, proxies, strict=True):
            self.links.append(asyncio.create_task(follow_routes(dialer, name)))

    async def is_whole(self) -> bool:
        """Whether each manager reaches the agents of both, including the other manager's over the
        link between managers."""
        found = [await site.client.workspaces.list() for site in self.sites]
        return all({item.agent_id for item in listing.items} == set(AGENTS) for listing in found)

    async def check(self) -> None:
        assert await self.is_whole()
        assert not any(link.done() for link in self.links), "a link ended"
        for dialer in self.dialers:
            for site in self.sites:
                async with dialer.channel((), site.manager.link_address) as channel:
                    await peers_pb2_grpc.PeersStub(channel).Hello(
                        peers_pb2.HelloRequest(), timeout=20
                    )

    async def maintain(self) -> None:
        """Do what agents and proxies do every ten minutes, until the rotation waits for none of
        them."""
        while (await self.sites[0].client.ca.get()).waiting_for:
            for dialer in self.dialers:
                await dialer.maintain()


async def until_state(site: Site, state: str) -> None:
    while (await site.client.ca.get()).state != state:
        await asyncio.sleep(0.05)


async def test_agents_and_proxies_stay_connected_to_both_managers(
    migrated_database: str, tmp_path: Path
) -> None:
    clock = SkewedClock()
    async with (
        open_site(migrated_database, tmp_path, clock=clock) as one,
        another(one, clock) as two,
        AsyncExitStack() as stack,
        asyncio.timeout(120),
    ):
        cluster = Cluster((one, two))
        for name in AGENTS:
            await one.join(name)
        for name in PROXIES:
            await two.join(name, kind="proxy")

        before = {name: stored(one, name, "agent") for name in AGENTS}
        await cluster.connect(stack, "1")
        while not await cluster.is_whole():
            await asyncio.sleep(0.05)

        assert "distributing" in await rotate_ca(two)
        await cluster.check()
        await cluster.maintain()
        clock.by += timedelta(minutes=2)
        assert "reissuing" in await rotate_ca(one)
        await cluster.check()
        await cluster.maintain()
        await cluster.check()
        clock.by += timedelta(minutes=2)
        assert "steady" in await rotate_ca(two)
        await until_state(one, "steady")

        # Links that were opened with the former certificates end, and are reopened to the other
        # manager.
        assert all("reconnect" in reason for reason in await asyncio.gather(*cluster.links))
        cluster = Cluster((two, one))
        await cluster.connect(stack, "2")
        while not await cluster.is_whole():
            await asyncio.sleep(0.05)

        await cluster.check()
        for name in AGENTS:
            assert stored(one, name, "agent").id == before[name].id, "it joined again"
            assert stored(one, name, "agent").authority != before[name].authority
        for link in cluster.links:
            link.cancel()

        await asyncio.gather(*cluster.links, return_exceptions=True)
