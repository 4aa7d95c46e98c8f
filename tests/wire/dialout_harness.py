"""A harness for dial-out: a listener and an agent's client with real sockets, and kernels behind
the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from moorage.agent.dialout.client import DialOut
from moorage.common.aio.clock import SystemClock
from moorage.common.link.certificates import new_key
from moorage.common.link.dial import Dialer
from moorage.common.link.identity import Identity, IdentityFile
from moorage.common.model.addresses import dial_out_host
from moorage.common.views.peers import PeerKind
from moorage.manager.crypto.authority import CertificateAuthority, read_csr
from moorage.proxy.dialout.connector import Connector
from moorage.proxy.dialout.listener import DialOutListener

TOKEN = "link-token"
CLOCK = SystemClock()
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def authority() -> CertificateAuthority:
    return CertificateAuthority(CertificateAuthority.create("secret", CLOCK.now()), "secret")


def identity(
    ca: CertificateAuthority, kind: PeerKind, name: str, peer_id: str, *, signs_as: str = ""
) -> Identity:
    """``signs_as``: the kind in the certificate, if it is a different one."""
    key, csr = new_key(name)
    now = CLOCK.now()
    hours = timedelta(hours=4)
    certificate = ca.sign_peer_certificate(
        read_csr(csr), signs_as or kind, name, peer_id, now=now, lifetime=hours
    )

    return Identity(
        peer_id,
        kind,
        name=name,
        resource_group=None,
        link="127.0.0.1:1",
        key=key,
        certificate=certificate,
        authority=ca.certificate,
        begins=now,
        ends=now + hours,
    )


def dialer(path: Path, who: Identity | None, token: str = TOKEN) -> Dialer:
    """The dialer of a peer with this identity; with None, the dialer uses the link token."""
    if who is None:
        return Dialer("127.0.0.1:1", token=token, clock=CLOCK)
    file = IdentityFile(path / f"{who.kind}-{who.name}-{who.id}.json")
    file.store(who)
    return Dialer("127.0.0.1:1", identity=file, clock=CLOCK)


class Site:
    """One proxy's listener, and one agent ``node-1`` whose only ports are those of ``kernel``."""

    def __init__(self, stack: AsyncExitStack, path: Path) -> None:
        self._stack = stack
        self.path = path
        self.host = "node-1.agent.invalid"
        self.ports = set[int]()
        self.connector = Connector()
        self.agent: DialOut | None = None

    @property
    def listener(self) -> DialOutListener:
        assert self.connector.listener is not None
        return self.connector.listener

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.listener.address)

    async def listen(self, who: Identity | None = None, port: int = 0) -> None:
        listener = DialOutListener("127.0.0.1", port, dialer(self.path, who), CLOCK)
        self.connector.take_streams_of(await self._stack.enter_async_context(listener))

    def dial(
        self, who: Identity | None = None, *, name: str = "node-1", token: str = TOKEN
    ) -> DialOut:
        agent = DialOut(
            name, "127.0.0.1", self.ports.__contains__, dialer(self.path, who, token), clock=CLOCK
        )
        agent.set_proxies([self.address])
        self._stack.push_async_callback(agent.close)
        self.agent = agent
        self.host = dial_out_host(name, who.id if who else "")

        return agent

    async def kernel(self, serve: Serve) -> int:
        """A program on the agent. Returns its port."""
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._stack.callback(server.close)
        port = int(server.sockets[0].getsockname()[1])
        self.ports.add(port)
        return port

    async def open(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(20):
            return await self.connector.open_streams(self.host, port)


@asynccontextmanager
async def site(path: Path, *, connected: bool = True) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        found = Site(stack, path)
        if connected:
            await found.listen()
            found.dial()
        yield found


async def until(what: str, condition: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None
