"""Dial-out client: keeps a connection to each proxy, over which the proxy opens streams to the
ports of the agent's kernels.

A proxy can reach only these ports, so an attacker who takes over a proxy cannot reach anything else
on the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Never
from weakref import WeakSet

import structlog

from moorage.agent.dialout.splice import Half
from moorage.agent.kernel.reconcile import ENDED
from moorage.common.aio.clock import Clock
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.dialout.connection import TICK_S, DialoutConnection
from moorage.common.link.dial import Dialer
from moorage.common.link.messages import Observation
from moorage.common.link.tls import client_context, peer_names
from moorage.common.model.addresses import split_address
from moorage.common.model.errors import ConfigError

if TYPE_CHECKING:
    from moorage.common.config.settings import AgentSettings

log = structlog.get_logger("moorage.agent.dialout")

_CONNECT_S = 5.0
_SPARE = "another address of it is connected"
_WHY = 300  # length of a reason in a report, in characters
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 5.0
# A connection that lasted this long does not count as a failed attempt.
_STEADY_S = 10.0
# A connection that is no longer wanted is closed once it has no streams and all proxies' tables
# have changed.
_LEAVE_S = 30.0
_LONGEST_LEAVE_S = 3600.0


def is_open(kernels: Callable[[], Iterable[Observation]], port: int) -> bool:
    """Whether ``port`` belongs to one of these kernels and the kernel has not ended."""
    return any(
        kernel.state not in ENDED
        and (kernel.port == port or any(app.port == port for app in kernel.apps))
        for kernel in kernels()
        if kernel.host
    )


class DialOut:
    """The dial-out connections of an agent. ``host``: where the kernels listen. ``may_open``:
    whether a port belongs to a kernel. ``dialer`` has the agent's identity. Nothing is dialed
    before ``set_proxies`` is called."""

    def __init__(
        self,
        agent_id: str,
        host: str,
        may_open: Callable[[int], bool],
        dialer: Dialer,
        *,
        clock: Clock,
    ) -> None:
        self._agent_id = agent_id
        self._host = host
        self._may_open = may_open
        self._dialer = dialer
        self._clock = clock
        self._links: dict[str, ProxyLink] = {}
        self._reached: dict[str, ProxyLink] = {}  # by proxy process
        self._leaving: set[asyncio.Task[None]] = set()
        self._all: WeakSet[ProxyLink] = WeakSet()  # includes links that are closing
        self._revoked: set[str] = set()

    @property
    def connected(self) -> tuple[str, ...]:
        """The addresses of the proxies to which there is a connection."""
        return tuple(address for address, link in self._links.items() if link.is_connected)

    @property
    def undialed(self) -> dict[str, str]:
        """The addresses of proxies that could not be connected, each with the reason."""
        return {
            address: link.why[:_WHY]
            for address, link in self._links.items()
            if link.why not in ("", _SPARE) and not link.is_connected
        }

    def why(self, address: str) -> str:
        """Why there is no connection to this proxy; "" if nothing has failed yet."""
        return self._links[address].why

    def set_proxies(self, addresses: Collection[str], revoked: Collection[str] = ()) -> None:
        """Keep a connection to each of these proxies and to no other. ``revoked``: peer ids of
        proxies that are refused at any address."""
        self._revoked.clear()
        self._revoked.update(revoked)

        for address in self._links.keys() - set(addresses):
            task = spawn("agent.dialout.leave", self._links.pop(address).leave())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

        for address in addresses:
            if address not in self._links:
                self._links[address] = ProxyLink(
                    address,
                    self._agent_id,
                    host=self._host,
                    may_open=self._may_open,
                    dialer=self._dialer,
                    clock=self._clock,
                    reached=self._reached,
                    revoked=self._revoked,
                )
                self._all.add(self._links[address])

        for link in self._all:
            link.check_revoked()

    async def close(self) -> None:
        links = self._links
        self._links = {}
        await asyncio.gather(*(link.close() for link in links.values()))
        await cancel_and_wait(*self._leaving)


def dial_out(
    settings: AgentSettings,
    agent_id: str,
    kernels: Callable[[], Iterable[Observation]],
    dialer: Dialer,
    *,
    clock: Clock,
) -> DialOut:
    """The dial-out client of an agent with these kernels."""
    if settings.reach == "auto":
        log.warning(
            'agent.reach = "auto" is accepted for the last time',
            next_step=(
                'set agent.reach = "direct", or "dial-out" where proxies do not reach this node'
            ),
        )

    return DialOut(
        agent_id, settings.address, may_open=partial(is_open, kernels), dialer=dialer, clock=clock
    )


class ProxyLink:
    """The connection to one proxy, which is redialed whenever it ends. ``reached``: the connected
    links by the process ids that the proxies report. A proxy that another link has reached at
    another address is skipped until that link loses it. ``revoked``: peer ids of revoked proxies;
    the set changes."""

    def __init__(
        self,
        address: str,
        agent_id: str,
        host: str,
        may_open: Callable[[int], bool],
        *,
        dialer: Dialer,
        clock: Clock,
        reached: dict[str, ProxyLink] | None = None,
        revoked: Collection[str] = (),
    ) -> None:
        self._revoked = revoked
        self._peer_id = ""
        self._reached = {} if reached is None else reached
        self._worker = ""
        self._is_spare = False
        self._lost = asyncio.Event()  # it has left `reached`
        self._connection: DialoutConnection | None = None
        self._attempt: DialoutConnection | None = None  # its outcome explains a missing connection
        self._address = address
        self._agent_id = agent_id
        self._host = host
        self._may_open = may_open
        self._dialer = dialer
        self._clock = clock
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._greeted = asyncio.Event()
        self._ended = asyncio.Event()
        self.why = ""
        self._logged = ""
        self.is_connected = False
        self._task = SupervisedTask("agent.dialout", self._run, key=address)

    async def close(self) -> None:
        await self._task.close()

    def check_revoked(self) -> None:
        """Close the connection if its proxy was revoked."""
        if self._peer_id in self._revoked and self._connection is not None:
            self._connection.end("the proxy was revoked")

    async def leave(self) -> None:
        """Close the connection once proxies no longer use it."""
        began_at = self._clock.monotonic()
        self._lose()

        try:
            while (
                self.is_connected
                and (after_s := self._clock.monotonic() - began_at) < _LONGEST_LEAVE_S
            ):
                if after_s >= _LEAVE_S and not (self._connection and self._connection.streams):
                    break
                await asyncio.sleep(1)
        finally:
            await self._task.close()

    async def _run(self) -> Never:
        backoff_s = FIRST_BACKOFF_S
        while True:
            began_at = self._clock.monotonic()
            try:
                await self._connect()
            except (OSError, TimeoutError, ConfigError, ValueError) as error:
                self.why = str(error) or "no answer in time"

            if self._clock.monotonic() - began_at > _STEADY_S:
                backoff_s = FIRST_BACKOFF_S
            if self.why != self._logged:
                self._logged = self.why
                log.warning("no dial-out connection to a proxy", proxy=self._address, why=self.why)

            await asyncio.sleep(backoff_s * self._clock.jitter(0.25))
            backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)

    async def _connect(self) -> None:
        """Hold one connection until it ends. Raises the errors that prevent a connection."""
        loop = asyncio.get_running_loop()
        identity = self._dialer.identity()
        token = {} if identity else {"token": self._dialer.token_in_clear()}
        self._greeted = asyncio.Event()
        self._ended = asyncio.Event()
        host, port = split_address(self._address)
        connection = DialoutConnection(
            on_hello=self._on_hello,
            on_open=self._on_open,
            on_cancel=self._cancel,
            on_lost=self._on_lost,
        )
        self._attempt = connection
        try:
            async with asyncio.timeout(_CONNECT_S):
                context = client_context(identity) if identity else None
                # A proxy's name is in its certificate, not in its address.
                server_hostname = "" if context else None
                transport, _ = await loop.create_connection(
                    lambda: connection, host, port, ssl=context, server_hostname=server_hostname
                )
                if identity is not None:
                    certificate = transport.get_extra_info("ssl_object").getpeercert()
                    kind, _, peer_id = peer_names(certificate)
                    if kind != "proxy":
                        raise ConfigError(
                            f"{self._address} is not a proxy of this installation",
                            next_step="check proxy.dialout_address",
                        )

                    if peer_id in self._revoked:
                        raise ConfigError(f"the proxy at {self._address} was revoked")

                    self._peer_id = peer_id

                connection.name_peer(self._address)
                self._connection = connection
                hello = {
                    "version": 1,
                    "agent": self._agent_id,
                    "reached": sorted(self._reached),
                    **token,
                }
                connection.say_hello(hello)
                await self._greeted.wait()

            if (first := self._reached.get(self._worker)) is not None or self._is_spare:
                self._logged = _SPARE
                self.why = _SPARE
                connection.end(self.why)
                if first is not None:
                    await first._lost.wait()

                return

            if self._worker:
                self._lost = asyncio.Event()
                self._reached[self._worker] = self

            self.is_connected = True
            self._logged = ""
            log.info("dial-out connection to a proxy", proxy=self._address)

            while not self._ended.is_set():
                try:
                    async with asyncio.timeout(TICK_S):
                        await self._ended.wait()
                except TimeoutError:
                    connection.tick()
        finally:
            self.is_connected = False
            self._attempt = None
            self._lose()
            connection.end("the agent closed it")
            await cancel_and_wait(*self._opening.values())

    def _lose(self) -> None:
        """Let another link connect to this proxy."""
        if self._reached.get(self._worker) is self:
            del self._reached[self._worker]
        self._lost.set()

    def _on_hello(self, connection: DialoutConnection, hello: Mapping[str, Any]) -> None:
        self._worker = str(hello.get("worker", ""))
        self._is_spare = hello.get("spare") is True
        self._greeted.set()

    def _on_lost(self, connection: DialoutConnection, why: str) -> None:
        if connection is self._attempt:
            self.why = why
            self._ended.set()
        self._greeted.set()

    def _on_open(self, connection: DialoutConnection, number: int, port: int) -> None:
        if not self._may_open(port):
            connection.refuse(number, f"no kernel of this agent has port {port}")
            return
        task = self._opening[number] = spawn(
            "agent.dialout.open", self._open(connection, number, port)
        )
        task.add_done_callback(lambda _: self._opening.pop(number, None))

    def _cancel(self, number: int) -> None:
        if (task := self._opening.get(number)) is not None:
            task.cancel()

    async def _open(self, connection: DialoutConnection, number: int, port: int) -> None:
        kernel = Half()
        stream = Half()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                await loop.create_connection(lambda: kernel, self._host, port)
        except (OSError, TimeoutError) as error:
            connection.refuse(number, str(error) or "the kernel does not answer")
            return

        if connection.accept(number, stream) is not None:
            stream.join(kernel)
        elif kernel.transport is not None:
            kernel.transport.abort()
