"""Agents whose address proxies try: with real sockets at the proxy, and at a manager with real
Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from dialout_harness import CLOCK, TOKEN, dialer, until
from manager_harness import INFO
from peer_harness import Site, site
from tests.addresses import free_port

from moorage.agent.dialout.client import DialOut
from moorage.agent.dialout.probe import ProbePort
from moorage.agent.state.ports import PortAllocator
from moorage.common.link import codec
from moorage.common.link.messages import AgentInfo, ModelRoute, Report, RouteTable, Target
from moorage.common.link.pb import agent_pb2_grpc, routes_pb2, routes_pb2_grpc
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.views.resources import AgentView
from moorage.manager.rpc import reach
from moorage.proxy.core.routes import IndexedTable
from moorage.proxy.dialout import reach as proxy_reach
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.dialout.listener import DialOutListener
from moorage.proxy.dialout.prober import ReachProber

__all__ = ["site"]  # fixture
pytestmark = pytest.mark.timeout(90)
HOST = "node-1.agent.invalid"


async def test_proxy_finds_addresses_that_do_not_answer_and_agents_that_need_not_dial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RETRY_S", "AGAIN_S"):
        monkeypatch.setattr(proxy_reach, name, 0.0)

    port = free_port()
    told = list[tuple[str, ...]]([()])

    def target(host: str, port: int) -> Target:
        return Target(SessionId(host), KernelId(host), host, port, "key", "vllm")

    serving = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    answers = serving.sockets[0].getsockname()[1]
    targets = target("127.0.0.1", answers), target("127.0.0.2", port), target(HOST, port)
    table = IndexedTable(RouteTable(1, (ModelRoute("m", 1, targets),), ()))
    async with serving, DialOutListener("127.0.0.1", 0, dialer(tmp_path, None), CLOCK) as listener:
        prober = ReachProber(lambda: table, listener.probes, told.append, CLOCK)
        connector = Connector()
        connector.listener = listener
        ports = PortAllocator(f"{port}-{port}", "127.0.0.1", clock=CLOCK)
        probe = ProbePort("node-1", "127.0.0.1", ports)
        agent = DialOut(
            "node-1", "127.0.0.1", lambda _: False, dialer(tmp_path, None, TOKEN), CLOCK, probe
        )
        async with prober.loop:
            await until(
                "the address that does not answer is found", lambda: told[-1] == ("127.0.0.2",)
            )
            agent.set_proxies(["{}:{}".format(*listener.address)])
            await until("the agent's address answers", lambda: told[-1] == ("127.0.0.2", HOST))
            await probe.close()
            somebody = await asyncio.start_server(
                lambda _, writer: writer.close(), "127.0.0.1", port
            )
            async with somebody:
                await until("who answers is not the agent", lambda: told[-1] == ("127.0.0.2",))

            await agent.close()


@asynccontextmanager
async def agent_told(
    site: Site, told: list[tuple[str, ...]], info: AgentInfo
) -> AsyncIterator[None]:
    """An agent that reports whenever it gets a message. ``told``: where to dial out to, each
    time."""
    async with site.dialer("node-1").channel(()) as channel:
        call = agent_pb2_grpc.AgentLinkStub(channel).Attach()  # type: ignore[no-untyped-call]
        report = codec.report_to_wire(Report(info, "1", 0, (), stream=1))
        await call.write(report)

        async def follow() -> None:
            while message := await call.read():
                if message.HasField("dialout"):
                    told.append(tuple(message.dialout.addresses))
                if message.HasField("full_report"):
                    await call.write(report)

        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            call.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_agent_is_moved_as_proxies_ask_and_stays_so_when_it_connects_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "BACK_S", 0.5)
    dialed = f"node-1.{(await site.join('node-1')).id}.agent.invalid"
    await site.join("edge", kind="proxy")
    told = list[tuple[str, ...]]()
    info = replace(INFO, address="127.0.0.1", reach="auto")

    async def is_at(address: str) -> AgentView:
        async with asyncio.timeout(20):
            while True:
                found = [
                    each for each in await site.client.list_agents() if each.address == address
                ]
                if found:
                    return found[0]
                await asyncio.sleep(0.05)

    async def shows(*unreached_by: str) -> None:
        async with asyncio.timeout(20):
            while (await site.client.get_agent("node-1")).unreached_by != list(unreached_by):
                await asyncio.sleep(0.05)

    async with site.dialer("edge", kind="proxy").channel(()) as channel:
        call = routes_pb2_grpc.RouteFeedStub(channel).Report()  # type: ignore[no-untyped-call]

        async def ask(*hosts: str) -> None:
            report = routes_pb2.ProxyReport(
                proxy_id="edge", dialout="edge.example:8802", other_way=hosts
            )
            await call.write(report)
            await call.read()

        await ask()
        async with agent_told(site, told, info):
            found = await is_at("127.0.0.1")
            assert (found.reach, found.reach_reason, found.direct_address) == ("direct", "", "")
            await ask("192.0.2.1", "127.0.0.1")
            found = await is_at(dialed)
            why = "127.0.0.1 does not answer edge"
            assert (found.reach, found.reach_reason, found.direct_address) == (
                "dial-out",
                why,
                "127.0.0.1",
            )
            await shows("edge")
            await until("it is told where to dial out to", lambda: bool(told))
            assert told == [("edge.example:8802",)]
            await ask()

        async with agent_told(site, told, replace(info, version=f"{info.version}+again")):
            async with asyncio.timeout(20):
                while len(told) < 2:
                    await asyncio.sleep(0.05)

            assert told[1:] == [("edge.example:8802",)]
            found = await is_at(dialed)
            assert (found.reach_reason, found.direct_address) == (why, "127.0.0.1")
            await ask(dialed)
            await shows()
            found = await is_at("127.0.0.1")
            assert (found.reach, found.reach_reason, found.direct_address) == ("direct", "", "")
            await until("it is told to dial no more", lambda: len(told) > 2)
            assert told[2:] == [()]
