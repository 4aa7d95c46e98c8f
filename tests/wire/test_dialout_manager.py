"""Managers and agents that only dial out: whose address is trusted, and which agents learn where to
dial."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from manager_harness import INFO
from peer_harness import Site, open_site, site

from moorage.common.link import codec
from moorage.common.link.messages import Report
from moorage.common.link.pb import agent_pb2, agent_pb2_grpc, routes_pb2, routes_pb2_grpc

__all__ = ["site"]  # fixture
ELSEWHERE = replace(INFO, address="192.0.2.7", undialed={"edge-9:8802": "timed out"})


@asynccontextmanager
async def attached(site: Site, reach: str) -> AsyncIterator[agent_pb2.ManagerMessage]:
    """A stream of node-1, and the first message that it receives. Raises ``AioRpcError`` if it is
    refused."""
    async with site.dialer("node-1").channel(()) as channel:
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach()  # type: ignore[no-untyped-call]
        report = Report(replace(ELSEWHERE, reach=reach), "1", 0, (), stream=1)
        await call.write(codec.report_to_wire(report))
        async with asyncio.timeout(20):
            message = await call.read()

        if message is grpc.aio.EOF:
            raise grpc.aio.AioRpcError(await call.code(), (), (), details=await call.details())  # type: ignore[arg-type]

        yield message


async def test_agent_is_sent_to_the_proxies_that_take_its_connections(site: Site) -> None:
    identity = await site.join("node-1")
    await site.join("edge", kind="proxy")
    host = f"node-1.{identity.id}.agent.invalid"

    for reach in ("auto", "direct"):
        with pytest.raises(grpc.aio.AioRpcError, match="is not the source of this connection"):
            async with attached(site, reach):
                pass

    async with attached(site, "dial-out") as message:
        assert not message.HasField("dialout")
        (agent,) = await site.client.agents.list()
        assert (agent.address, agent.reach, agent.undialed) == (
            host,
            "dial-out",
            {"edge-9:8802": "timed out"},
        )
        assert agent.reach_reason == "agent.reach is dial-out"

    async with site.dialer("edge", kind="proxy").channel(()) as channel:
        call = routes_pb2_grpc.RouteFeedStub(channel).Report()  # type: ignore[no-untyped-call]
        await call.write(routes_pb2.ProxyReport(proxy_id="edge", dialout="127.0.0.1:8802"))
        await call.read()

        async with asyncio.timeout(20):
            while True:
                try:
                    async with attached(site, "auto") as message:
                        break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.1)

        assert list(message.dialout.addresses) == ["127.0.0.1:8802"]
        assert not message.dialout.revoked
        (agent,) = await site.client.agents.list()
        assert (
            agent.reach_reason
            == "its link comes from 127.0.0.1, not from agent.address = 192.0.2.7"
        )
        with pytest.raises(grpc.aio.AioRpcError, match="is not the source of this connection"):
            async with attached(site, "direct"):
                pass


@pytest.mark.parametrize("allowed", [(), ("hostile=192.0.2.9",)])
async def test_agents_are_sent_only_where_a_proxy_connects_from(
    migrated_database: str, tmp_path: Path, allowed: tuple[str, ...]
) -> None:
    async with (
        open_site(migrated_database, tmp_path, proxy_addresses=allowed) as site,
        AsyncExitStack() as stack,
    ):
        await site.join("node-1")
        for name, address in (
            ("hostile", "192.0.2.9:22"),
            ("other", "192.0.2.9:23"),
            ("broken", "192.0.2.9"),
            ("edge", "localhost:8802"),
        ):
            await site.join(name, kind="proxy")
            channel = await stack.enter_async_context(site.dialer(name, kind="proxy").channel(()))
            call = routes_pb2_grpc.RouteFeedStub(channel).Report()  # type: ignore[no-untyped-call]
            await call.write(routes_pb2.ProxyReport(proxy_id=name, dialout=address))
            assert await call.read() is not grpc.aio.EOF  # its other work continues

        addresses: list[str] = []
        async with asyncio.timeout(20):
            while "localhost:8802" not in addresses:  # the last one
                async with attached(site, "dial-out") as message:
                    addresses = list(message.dialout.addresses)

        assert addresses == [*(["192.0.2.9:22"] if allowed else []), "localhost:8802"]


async def test_agent_learns_which_proxies_were_revoked(site: Site) -> None:
    await site.join("node-1")
    before, edge = [await site.join(name, kind="proxy") for name in ("before", "edge")]
    await site.client.peers.revoke("proxy", "before")

    async with site.dialer("node-1").channel(()) as channel, asyncio.timeout(20):
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach()  # type: ignore[no-untyped-call]
        report = Report(replace(ELSEWHERE, reach="dial-out"), "1", 0, (), stream=1)
        await call.write(codec.report_to_wire(report))
        told: set[str] = set()
        while told != {before.id}:
            told = set((await call.read()).dialout.revoked)

        await site.client.peers.revoke("proxy", "edge")
        while told != {before.id, edge.id}:
            told = set((await call.read()).dialout.revoked)
