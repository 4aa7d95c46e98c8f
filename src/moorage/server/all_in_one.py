"""Everything in one process, by configuration: real gRPC and HTTP on loopback, no shortcut between the parts.

The only module that imports all components. Manager first, proxy last; stopped in reverse.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from moorage.agent import Agent
from moorage.common.aio.clock import Clock
from moorage.common.config.settings import Settings
from moorage.common.link.identity import identity_file
from moorage.common.model.addresses import reached_at
from moorage.common.views.peers import JoinTokenSpec, PeerKind
from moorage.manager import Manager
from moorage.proxy import Proxy
from moorage.server.process import note_connection
from moorage.server.registration import join


def one_node(settings: Settings, manager_link: str) -> Settings:
    """The same settings for a node that is all of the cluster: the links lead to our own manager, and an
    orderly stop takes the kernels along (a crash does not: they are adopted by the next start)."""
    agent = settings.agent.model_copy(update={"manager": manager_link, "stop_kernels_on_exit": True})
    proxy = settings.proxy.model_copy(update={"manager": manager_link})
    return settings.model_copy(update={"agent": agent, "proxy": proxy})


class AllInOne:
    """``progress(words)`` is called as each part is up. After entering: ``url``, ``openai_url``,
    ``internal_url``, and ``first_key`` (the first admin key in plain, only on the very first start)."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        link_token: str,
        home: Path,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings, self._clock, self._token, self._home = settings, clock, link_token, home
        self._progress = progress
        self._stack = AsyncExitStack()
        self.url = self.openai_url = self.internal_url = ""
        self.first_key: str | None = None

    async def __aenter__(self) -> AllInOne:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _start(self) -> None:
        given, clock, token, home = self._settings, self._clock, self._token, self._home
        manager = Manager(
            given.manager, clock=clock, link_token=token, home=home, link_tls=given.common.link_tls
        )
        await self._stack.enter_async_context(manager)
        self.first_key, self.url = manager.first_key, f"http://{manager.api_address}"
        self._progress(f"manager and its Postgres: {self.url}")
        settings = one_node(given, reached_at(manager.link_address))
        agent = Agent(settings.agent, settings.common, clock=clock, link_token=token, home=home)
        await self._join(manager, "agent", agent.id)
        await self._stack.enter_async_context(agent)
        self._progress(f"agent {agent.id}")
        proxy = Proxy(settings.proxy, settings.common, clock=clock, link_token=token, home=home)
        await self._join(manager, "proxy", proxy.id)
        await self._stack.enter_async_context(proxy)
        self.openai_url = "http://{}:{}/v1".format(*proxy.address)
        self.internal_url = "http://{}:{}".format(*proxy.internal_address)
        self._progress(f"proxy: {self.openai_url}")
        note_connection(home, url=self.url, openai_url=self.openai_url)

    async def _join(self, manager: Manager, kind: PeerKind, name: str) -> None:
        """Where the links speak TLS, our own agent and proxy join as all others do."""
        known = identity_file(self._home, kind, name).load()
        if not manager.has_tls or (known is not None and not known.what_is_wrong(self._clock.now())):
            return
        secret = await manager.new_join_token(JoinTokenSpec(kind=kind))
        url = f"http://{reached_at(manager.api_address)}"
        await join(url, secret, kind=kind, name=name, home=self._home, clock=self._clock)

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
