"""All-in-one mode: manager, agent and proxy in one process, connected by real gRPC and HTTP on
loopback.

All-in-one is purely a matter of configuration; there is no in-process shortcut between components.
The manager starts first and the proxy last; they stop in reverse order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from moorage.agent import Agent
from moorage.agent.agent_id import agent_id
from moorage.common.aio.clock import Clock
from moorage.common.config.settings import Settings
from moorage.common.http.own_certificate import client_ca_file
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import local_address, usable_address
from moorage.common.views.peers import JoinTokenSpec, PeerKind
from moorage.manager import Manager
from moorage.proxy import Proxy
from moorage.server.process import write_connection_file
from moorage.server.registration import join
from moorage.server.tracing import tracer_for

# How long the start waits for the agent and the proxy to connect. They keep trying afterwards.
CONNECT_S = 10.0
log = structlog.get_logger("moorage.up")


def single_node_settings(settings: Settings, manager_link: str) -> Settings:
    """The settings for a one-node cluster.

    The agent and the proxy connect to the local manager at ``manager_link``.
    """
    agent = settings.agent.model_copy(update={"manager": manager_link})
    proxy = settings.proxy.model_copy(update={"manager": manager_link})
    common = settings.common.model_copy(update={"manager_home": None})
    return settings.model_copy(update={"agent": agent, "proxy": proxy, "common": common})


class AllInOne:
    """Manager, agent and proxy as one async context manager.

    Calls ``on_progress(message)`` when a component has started. After entering, ``url``,
    ``openai_url``, ``internal_url``, ``manager``, ``proxy_id`` and ``proxy_address`` (of its
    listener) are set, and ``processes`` describes how kernels run as processes. ``first_key`` is
    the first admin key in plain text; it is set only on the very first start. After leaving,
    ``left_running`` has the kernels that keep running, which the next start adopts.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        link_token: str,
        home: Path,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Raises ``ConfigError``."""
        agent_id(settings.agent)  # invalid settings cause a failure here, before anything starts
        self._settings = settings
        self._clock = clock
        self._token = link_token
        self._home = home
        self._on_progress = on_progress
        self._stack = AsyncExitStack()
        self.url = ""
        self.openai_url = ""
        self.internal_url = ""
        self.proxy_id = ""
        self.proxy_address = "", 0
        self.first_key: str | None = None
        self.processes = ""
        self._agent: Agent | None = None
        self.left_running = 0

    async def __aenter__(self) -> AllInOne:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _start(self) -> None:
        configured = self._settings
        clock = self._clock
        token = self._token
        home = self._home
        manager = Manager(
            configured.manager,
            clock=clock,
            link_token=token,
            home=home,
            link_tls=configured.common.link_tls,
            tls=configured.common.tls,
            tls_names=configured.common.tls_names,
            tracer=tracer_for(configured.telemetry, "manager", clock),
        )
        self.manager = await self._stack.enter_async_context(manager)
        self.first_key = manager.first_key
        self.url = f"{manager.api_scheme}://{manager.api_address}"
        self._on_progress(f"manager and its Postgres: {self.url}")
        settings = single_node_settings(configured, local_address(manager.link_address))
        tracer = tracer_for(settings.telemetry, "agent", clock)
        if tracer is not None:
            await self._stack.enter_async_context(tracer)

        connected = asyncio.Event()
        agent = Agent(
            settings.agent,
            settings.common,
            clock=clock,
            link_token=token,
            home=home,
            tracer=tracer,
            ready=connected.set,
        )
        await self._ensure_registered(manager, "agent", agent.id)
        self._agent = await self._stack.enter_async_context(agent)
        self.processes = self._agent.isolation()
        self._on_progress(f"agent {agent.id}")
        proxy = Proxy(
            settings.proxy,
            settings.common,
            clock=clock,
            link_token=token,
            home=home,
            tracer=tracer_for(settings.telemetry, "proxy", clock),
        )
        await self._ensure_registered(manager, "proxy", proxy.id)
        await self._stack.enter_async_context(proxy)
        self.proxy_id = proxy.id
        self.proxy_address = proxy.address
        self.openai_url = f"{proxy.scheme}://{usable_address(*proxy.address)}/v1"
        manager.models.url = manager.models.url or self.openai_url
        self.internal_url = "http://{}:{}".format(*proxy.internal_address)
        await self._until_connected(connected, proxy)
        self._on_progress(f"proxy: {self.openai_url}")
        write_connection_file(
            home,
            url=self.url,
            socket=manager.api_socket,
            openai_url=self.openai_url,
            ca_file=client_ca_file(configured.common.tls, home),
        )

    async def _until_connected(self, agent_connected: asyncio.Event, proxy: Proxy) -> None:
        """Wait until the manager knows the node and the proxy has its routes, so that everything is
        usable as soon as it is reported as running."""
        try:
            async with asyncio.timeout(CONNECT_S):
                await agent_connected.wait()
                while not proxy.ready:  # noqa: ASYNC110 - like a worker's, its state has no event
                    await asyncio.sleep(0.02)
        except TimeoutError:
            log.warning("not connected yet: its agent and its proxy")

    async def _ensure_registered(self, manager: Manager, kind: PeerKind, name: str) -> None:
        """Register the local agent or proxy as any other peer would register, if the links use
        TLS."""
        known = identity_file(self._home, kind, name).load()
        if not manager.has_tls or (known is not None and not known.find_problem(self._clock.now())):
            return
        secret = await manager.new_join_token(JoinTokenSpec(kind=kind))
        url = f"{manager.api_scheme}://{local_address(manager.api_address)}"
        await join(url, secret, kind=kind, name=name, home=self._home, clock=self._clock)

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
        self.left_running = self._agent.live_kernels if self._agent is not None else 0
