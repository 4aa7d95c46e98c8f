"""Agents whose addresses proxies try: with real sockets on the proxy, and on a manager with a real
Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from dialout_harness import CLOCK, until
from manager_harness import INFO
from peer_harness import Site, site
from tests.addresses import free_port

from moorage.common.link import codec
from moorage.common.link.messages import ModelRoute, Report, RouteTable, Target
from moorage.common.link.pb import agent_pb2_grpc, routes_pb2, routes_pb2_grpc
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.views.resources import AgentView
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout import reach as proxy_reach
from moorage.proxy.dialout.prober import ReachProber

__all__ = ["site"]  # fixture
pytestmark = pytest.mark.timeout(90)


async def test_proxy_finds_addresses_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETRY_S", "AGAIN_S"):
        monkeypatch.setattr(proxy_reach, name, 0.0)

    port = free_port()
    told = list[tuple[str, ...]]([()])

    def target(host: str, port: int) -> Target:
        return Target(
            SessionId(host), KernelId(host), host=host, port=port, key="key", engine="vllm"
        )

    serving = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    answers = serving.sockets[0].getsockname()[1]
    targets = (
        target("127.0.0.1", answers),
        target("127.0.0.2", port),
        target("node-1.agent.invalid", port),
    )
    table = IndexedTable(RouteTable(1, (ModelRoute("m", 1, targets),), ()))
    prober = ReachProber(lambda: table, told.append, CLOCK)
    async with serving, prober.loop:
        await until("the address that does not answer is found", lambda: told[-1] == ("127.0.0.2",))
        late = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.2", port)
        async with late:
            await until("it answers", lambda: told[-1] == ())


@asynccontextmanager
async def agent(site: Site, reach: str) -> AsyncIterator[AgentView]:
    """What the API shows about a connected agent."""
    async with site.dialer("node-1").channel(()) as channel:
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach()  # type: ignore[no-untyped-call]
        info = replace(INFO, address="127.0.0.1", reach=reach, version=f"{INFO.version}+{reach}")
        await call.write(codec.report_to_wire(Report(info, "1", 0, (), stream=1)))

        try:
            async with asyncio.timeout(20):
                await call.read()
            yield await site.client.agents.get("node-1")
        finally:
            call.cancel()


async def test_agent_that_proxies_do_not_reach_is_shown_and_not_moved(site: Site) -> None:
    dialed = f"node-1.{(await site.join('node-1')).id}.agent.invalid"
    await site.join("edge", kind="proxy")

    async def shows(*unreached_by: str) -> AgentView:
        async with asyncio.timeout(20):
            while (found := await site.client.agents.get("node-1")).unreached_by != list(
                unreached_by
            ):
                await asyncio.sleep(0.05)
        return found

    async with site.dialer("edge", kind="proxy").channel(()) as channel:
        call = routes_pb2_grpc.RouteFeedStub(channel).Report()  # type: ignore[no-untyped-call]

        async def tell(*hosts: str) -> None:
            report = routes_pb2.ProxyReport(
                proxy_id="edge", dialout="127.0.0.1:8802", unreached=hosts
            )
            await call.write(report)
            await call.read()

        await tell("192.0.2.1", "127.0.0.1")
        for reach in ("direct", "auto"):
            async with agent(site, reach) as found:
                assert (found.address, found.reach, found.reach_reason) == (
                    "127.0.0.1",
                    "direct",
                    "",
                )
                found = await shows("edge")
                assert (found.address, found.reach) == ("127.0.0.1", "direct")

        async with agent(site, "dial-out") as found:
            assert (found.address, found.reach, found.unreached_by) == (dialed, "dial-out", [])
            await tell(
                dialed
            )  # from a proxy of the previous release, which reaches its own address
            async with asyncio.timeout(20):
                while dialed not in (await site.sql("SELECT asks::text FROM managers"))[0]["asks"]:
                    await asyncio.sleep(0.05)

            assert (await site.client.agents.get("node-1")).unreached_by == []

        # Like an agent of the previous release that is configured to dial out.
        async with agent(site, "auto") as found:
            assert (found.address, found.reach_reason) == (dialed, "agent.reach is dial-out")
        async with agent(site, "direct") as found:
            assert (found.address, found.reach_reason) == ("127.0.0.1", "")
