"""Dial-out listener: accepts connections from agents, and opens streams over them instead of TCP
connections."""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.sockets import source_address
from moorage.common.dialout.connection import TICK_S, DialoutConnection
from moorage.common.link.dial import Dialer
from moorage.common.link.identity import Identity
from moorage.common.link.tls import load, may_serve, peer_names, server_context
from moorage.common.model.addresses import WILDCARDS, dial_out_host, split_address
from moorage.common.model.errors import ConfigError

log = structlog.get_logger("moorage.proxy.dialout")

_HANDSHAKE_S = 10.0
Opened = tuple[asyncio.Transport, asyncio.Protocol]


def published_address(
    setting: str | None, bound: tuple[str, int], manager: str, number: int
) -> str:
    """The address at which agents reach worker ``number``, whose listener is at ``bound``.
    ``setting``: proxy.dialout_address."""
    host, port = bound
    if setting is not None:
        host, port = split_address(setting)
        port += number
    elif host in WILDCARDS:
        host = source_address(*split_address(manager)) or host

    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class DialOutListener:
    """The listener, as an async context manager. ``address``: the bound address. Agents present
    certificates of the links' CA; without TLS, they send the link token. An agent can open several
    connections; streams use the newest."""

    def __init__(self, host: str, port: int, dialer: Dialer, clock: Clock) -> None:
        self.address = (host, port)
        self._dialer = dialer
        self._clock = clock

        # Identifies the process that an agent has reached at any address, because a proxy's name
        # can be copied.
        self._worker = clock.new_id()
        self._agents: dict[str, list[DialoutConnection]] = {}
        self._arrived: dict[str, asyncio.Event] = {}  # by host, for waiting streams
        self._anonymous: dict[
            DialoutConnection, int
        ] = {}  # connections without a hello, with their ticks
        self._peer_ids: dict[DialoutConnection, str] = {}  # names under which their agents joined
        self._revoked: Collection[str] = ()
        self._identity: Identity | None = None
        self._context: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._loop = Loop("proxy.dialout", self._tick, interval_s=TICK_S, clock=clock)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that have a connection."""
        return tuple(self._agents)

    def connections(self, host: str) -> tuple[DialoutConnection, ...]:
        """An agent's connections, newest last."""
        return tuple(self._agents.get(host, ()))

    async def open(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Opened:
        """Open a stream to a port of the agent at ``host``. It waits for the agent's connection, so
        the caller must set a time limit. Raises ``OSError``."""
        host = host.lower()
        while not (connections := self._agents.get(host)):
            await self._arrived.setdefault(host, asyncio.Event()).wait()
        return await connections[-1].open(port, factory)

    async def __aenter__(self) -> DialOutListener:
        """Raises ``OSError`` if the address cannot be bound."""
        self._identity = self._dialer.identity()
        if self._identity is not None:
            self._context = server_context(self._identity)

        self._server = await asyncio.get_running_loop().create_server(
            self._make,
            *self.address,
            ssl=self._context,
            ssl_handshake_timeout=_HANDSHAKE_S if self._context else None,
        )
        self.address = self._server.sockets[0].getsockname()[:2]
        await self._loop.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._loop.__aexit__()
        if self._server is not None:
            self._server.close()
        for connection in (*self._anonymous, *(c for each in self._agents.values() for c in each)):
            connection.end("the proxy stops")

    def _make(self) -> DialoutConnection:
        connection = DialoutConnection(on_hello=self._on_hello, on_lost=self._on_lost)
        self._anonymous[connection] = 0
        return connection

    def _on_hello(self, connection: DialoutConnection, hello: Mapping[str, Any]) -> None:
        assert connection.transport is not None
        self._anonymous.pop(connection, None)
        agent = str(hello.get("agent", ""))
        peer_id = ""
        if self._context is not None:
            kind, agent, peer_id = peer_names(connection.transport.get_extra_info("peercert"))
            if kind != "agent" or agent != hello.get("agent"):
                self._refuse(connection, f"this certificate is for {kind} {agent!r}")
                return
            if peer_id in self._revoked:
                self._refuse(connection, f"agent {agent!r} was revoked: join again")
                return
        elif not agent or not self._knows_token(hello):
            self._refuse(connection, "wrong link token: use the manager's (common.link_token)")
            return

        reached = hello.get("reached")
        if isinstance(reached, list) and self._worker in reached:
            # Streams over it would break, because the agent closes it when it learns which process
            # it has reached.
            self._anonymous[connection] = 0
            connection.say_hello({"version": 1, "worker": self._worker, "spare": True})
            return

        connection.name_peer(dial_out_host(agent, peer_id))
        self._peer_ids[connection] = peer_id
        self._agents.setdefault(connection.peer, []).append(connection)
        connection.say_hello({"version": 1, "worker": self._worker})
        if (waiting := self._arrived.pop(connection.peer, None)) is not None:
            waiting.set()

        log.info("an agent has dialed out", agent=agent)

    def revoke(self, agents: Collection[str]) -> None:
        """Close these agents' connections, given by peer ids, and refuse them from now on. This
        replaces earlier revocations."""
        self._revoked = agents
        for connection, peer_id in list(self._peer_ids.items()):
            if peer_id in agents:
                connection.end("the agent was revoked")

    def _knows_token(self, hello: Mapping[str, Any]) -> bool:
        given = str(hello.get("token", ""))
        token = self._dialer.token
        return bool(token) and hmac.compare_digest(given.encode(), token.encode())

    def _refuse(self, connection: DialoutConnection, why: str) -> None:
        assert connection.transport is not None
        log.warning(
            "dial-out connection refused",
            peer=connection.transport.get_extra_info("peername"),
            why=why,
        )
        connection.refuse_peer(why)

    def _on_lost(self, connection: DialoutConnection, why: str) -> None:
        self._anonymous.pop(connection, None)
        self._peer_ids.pop(connection, None)
        connections = self._agents.get(connection.peer, [])
        if connection in connections:
            connections.remove(connection)
            if not connections:
                del self._agents[connection.peer]
            log.info("dial-out connection of an agent has ended", agent=connection.peer, why=why)

    async def _tick(self) -> None:
        for connections in list(self._agents.values()):
            for connection in list(connections):
                connection.tick()
        for connection, ticks in list(self._anonymous.items()):
            self._anonymous[connection] = ticks + 1
            if ticks > 2:
                connection.end("no hello")
        if self._context is not None:
            await self._renew(self._context)

    async def _renew(self, context: ssl.SSLContext) -> None:
        """Renew the certificate that is presented to agents, which must be valid for a server."""
        try:
            identity = await asyncio.to_thread(self._dialer.identity)
        except ConfigError as error:
            log.warning("the certificate cannot be used", why=str(error))
            return

        assert identity is not None
        if not may_serve(identity):
            await self._dialer.renew(now=True)
        elif identity != self._identity:
            self._identity = identity
            load(context, identity)
