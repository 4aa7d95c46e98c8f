"""An agent behind NAT, with two proxies: they report that they cannot reach it; it dials out once
configured to, and survives the loss of its mappings."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from moorage.agent.dialout.client import LONGEST_BACKOFF_S
from moorage.common.dialout.connection import SILENT_TICKS, TICK_S
from moorage.common.views.resources import AgentView
from tests.e2e import dialout_program
from tests.e2e.harness import Platform, until
from tests.e2e.test_apps import START, exchange

from .nat import Nat

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(540)]
PROXIES = ("proxy-1", "proxy-2")
PROGRAM = (
    sys.executable,
    str(Path(dialout_program.__file__)),
    "{port:web}",
    "{port:backwards}",
    "0.0.0.0",
)
# How long the connection is silent before either side considers it broken, and the longest wait
# before it is dialed again.
NOTICED_S = (SILENT_TICKS + 1) * TICK_S
DIALED_AGAIN_S = NOTICED_S + 1.25 * LONGEST_BACKOFF_S
# Allows for a slow machine.
GRACE_S = 15.0


@pytest.fixture
def nat() -> Iterator[Nat]:
    made = Nat(PROXIES, "node-1")
    try:
        made.open()
    except OSError as error:
        pytest.skip(f"SKIPPED: no network namespaces on this machine: {error}")
    yield made
    made.close()


@pytest.fixture
def platform(home: Path, empty_database: str, nat: Nat) -> Iterator[Platform]:
    running = Platform(home)
    running.url = f"http://{nat.own}:8700"
    address = nat.addresses
    running.env |= {
        "MOORAGE_MANAGER__DSN": empty_database,
        "MOORAGE_MANAGER__LISTEN": f"{nat.own}:8700",
        "MOORAGE_MANAGER__LINK_LISTEN": f"{nat.own}:8701",
        "MOORAGE_URL": running.url,
        # Not loopback, but a private network.
        "MOORAGE_COMMON__LINK_TLS": "off",
        # Its link arrives from the router, but it still has this address.
        "MOORAGE_MANAGER__AGENT_ADDRESSES": json.dumps([f"node-1={address['node-1']}"]),
        "MOORAGE_AGENT__ADDRESS": address["node-1"],
        "MOORAGE_AGENT__MANAGER": f"{nat.own}:8701",
        "MOORAGE_PROXY__MANAGER": f"{nat.own}:8701",
        "MOORAGE_PROXY__INTERNAL_LISTEN": "127.0.0.1:8801",
        "MOORAGE_PROXY__DIALOUT_LISTEN": "0.0.0.0:8802",
    }
    running.start("manager")
    for name in PROXIES:
        env = {"MOORAGE_PROXY__ID": name, "MOORAGE_PROXY__LISTEN": f"{address[name]}:8800"}
        running.start("proxy", env=env, known_as=name, prefix=nat.prefix(name))

    running.start("agent", prefix=nat.prefix("node-1"))
    yield running
    running.close()


class Clients:
    """Clients of the session ``apps``, one through each proxy."""

    def __init__(self, platform: Platform, nat: Nat, http: aiohttp.ClientSession) -> None:
        self._platform = platform
        self._nat = nat
        self._http = http
        self._urls: dict[str, str] = {}

    async def open(self, proxy: str) -> None:
        self._through(proxy)
        opened = await asyncio.to_thread(self._platform.run, "open", "apps")
        assert opened.returncode == 0, opened.stderr
        async with self._http.get(opened.stdout.strip()) as answer:
            await answer.read()
        self._urls[proxy] = opened.stdout.strip().partition("?")[0]

    def _through(self, proxy: str) -> None:
        self._platform.env["MOORAGE_OPENAI_URL"] = f"http://{self._nat.addresses[proxy]}:8800/v1"

    async def answers(self, proxy: str) -> bool:
        async with asyncio.timeout(5), self._http.get(self._urls[proxy]) as answer:
            return answer.status == 200

    async def socket(self, proxy: str) -> aiohttp.ClientWebSocketResponse:
        socket = await self._http.ws_connect(self._urls[proxy])
        await socket.send_str("hello")
        assert await socket.receive_str() == "echo hello"
        return socket

    async def served_again(self, restarted_at: float) -> None:
        """Wait until each proxy serves again after the router's restart, which must not take
        long."""
        for proxy in PROXIES:
            await until(f"{proxy} serves again", lambda proxy=proxy: self.answers(proxy))
        assert time.monotonic() - restarted_at < DIALED_AGAIN_S + GRACE_S

    async def all_ways(self) -> None:
        """A streamed response, a WebSocket and a TCP stream through each proxy."""
        for proxy in PROXIES:
            async with asyncio.timeout(30), self._http.get(f"{self._urls[proxy]}stream") as answer:
                lines = [line async for line in answer.content]
            assert lines == [b"%d\n" % number for number in range(20)]
            await (await self.socket(proxy)).close()
            self._through(proxy)
            assert await exchange(self._platform, b"stressed") == b"desserts"


async def test_agent_behind_nat_dials_out(platform: Platform, nat: Nat) -> None:
    async def agent() -> AgentView:
        async with platform.client() as client:
            return await client.agents.get("node-1")

    async def reached(how: str, *unreached_by: str) -> bool:
        seen = await agent()
        return (seen.reach, seen.unreached_by, seen.undialed) == (how, list(unreached_by), {})

    async def starts() -> bool:
        started = await asyncio.to_thread(platform.run, *START, *PROGRAM)
        return started.returncode == 0

    await until(
        "the first key exists", lambda: asyncio.to_thread((platform.home / "admin-key").exists), 120
    )
    await until("the agent takes a session", starts, 120)
    await until("proxies have found out", lambda: reached("direct", *PROXIES), 120)
    described = await asyncio.to_thread(platform.run, "agents", "describe", "node-1")
    assert "no answer to proxy-1, proxy-2" in " ".join(described.stdout.split())
    await asyncio.to_thread(platform.stop, "agent")
    platform.start("agent", env={"MOORAGE_AGENT__REACH": "dial-out"}, prefix=nat.prefix("node-1"))
    await until("it dials out", lambda: reached("dial-out"), 120)
    assert (await agent()).reach_reason == "agent.reach is dial-out"

    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        clients = Clients(platform, nat, http)
        for proxy in PROXIES:
            await clients.open(proxy)
            await until(f"{proxy} serves", lambda proxy=proxy: clients.answers(proxy))

        await clients.all_ways()

        # The router loses its mappings without notifying anyone.
        socket = await clients.socket("proxy-1")
        began = time.monotonic()
        nat.restart_router()
        async with asyncio.timeout(NOTICED_S + GRACE_S):
            message = await socket.receive()

        assert message.type is not aiohttp.WSMsgType.TEXT, "its stream has ended"
        await clients.served_again(began)
        await clients.all_ways()
        assert (await agent()).reach == "dial-out"
