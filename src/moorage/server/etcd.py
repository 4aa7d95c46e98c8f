"""A daemon's use of etcd: to discover its managers, and to register itself while it runs.

Agents import this module, so the HTTP client is imported only where etcd is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from moorage import __version__
from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.aio.sockets import source_address
from moorage.common.aio.supervisor import SupervisedTask
from moorage.common.config.etcd_address import is_etcd
from moorage.common.etcd.access import EtcdAccess, etcd_access
from moorage.common.model.addresses import WILDCARDS

if TYPE_CHECKING:
    from moorage.common.config.etcd_settings import EtcdSettings
    from moorage.common.config.settings import AgentSettings, ProxySettings
    from moorage.common.etcd.registration import MemberKind
    from moorage.common.link.dial import Dialer

T = TypeVar("T")
S = TypeVar("S", "AgentSettings", "ProxySettings")

DISCOVERY_S = 15.0


@dataclass(frozen=True)
class EtcdUse:
    """A daemon's use of etcd. ``register``: the etcd for its registration and settings;
    ``discover``: the etcd in which its managers are registered. None means unused. ``home``: the
    state directory."""

    home: Path
    register: EtcdAccess | None = None
    discover: EtcdAccess | None = None

    @property
    def memory(self) -> Path:
        """The file with the discovered managers."""
        return self.home / "etcd-managers.json"


def locate_managers(
    sections: Sequence[S], settings: EtcdSettings, home: Path, clock: Clock
) -> tuple[tuple[S, ...], EtcdUse]:
    """Replace ``etcd://…`` in the sections with the addresses of managers, and return the sections,
    along with how the daemon uses etcd. Raises ``StartupError`` if no manager is registered."""
    use = EtcdUse(home, etcd_access(settings))
    address = next((section.manager for section in sections if is_etcd(section.manager)), None)
    if address is None:
        return tuple(sections), use

    from moorage.common.etcd.discovery import wait_for_managers

    discover = etcd_access(settings, address)
    assert discover is not None
    managers = ", ".join(asyncio.run(wait_for_managers(discover, use.memory, clock)))
    located = tuple(
        section.model_copy(update={"manager": managers}) if is_etcd(section.manager) else section
        for section in sections
    )

    return located, replace(use, discover=discover)


@dataclass(frozen=True)
class Member:
    """A daemon to register. ``facts``: what others may learn about it. ``listens``: scheme, host
    and port of its ``url``."""

    kind: MemberKind
    name: str
    facts: Mapping[str, str]
    listens: tuple[str, str, int] | None = None

    def describe(self, access: EtcdAccess) -> dict[str, str]:
        """Describe it as JSON for etcd. A wildcard address is replaced with the address from which
        this host reaches etcd."""
        described = {**self.facts, "version": __version__}
        if self.listens is not None:
            scheme, host, port = self.listens
            if host in WILDCARDS:
                etcd = urlsplit(access.endpoints[0])
                host = source_address(etcd.hostname or "", etcd.port or 0) or host

            described["url"] = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

        return described


def manager_member(link: str, scheme: str, api: tuple[str, int]) -> Member:
    return Member("managers", link, {"link": link}, (scheme, *api))


def proxy_member(name: str, scheme: str, openai: tuple[str, int]) -> Member:
    return Member("proxies", name, {}, (scheme, *openai))


def agent_member(name: str, settings: AgentSettings) -> Member:
    return Member(
        "agents", name, {"resource_group": settings.resource_group, "address": settings.address}
    )


@asynccontextmanager
async def with_etcd(
    component: AbstractAsyncContextManager[T],
    use: EtcdUse,
    clock: Clock,
    members: Callable[[T], Iterable[Member]],
    *,
    dialers: Callable[[T], Iterable[Dialer | None]] = lambda _: (),
) -> AsyncIterator[T]:
    """Enter ``component``. It is registered in etcd while it runs, and its ``dialers`` look up
    managers when the known managers do not answer."""
    async with AsyncExitStack() as stack:
        entered = await stack.enter_async_context(component)
        if use.register is not None:
            from moorage.common.etcd.registration import registered
            from moorage.server.shared_settings import SettingsWatch

            for member in members(entered):
                describe = partial(member.describe, use.register)
                context = registered(
                    use.register, member.kind, name=member.name, describe=describe, clock=clock
                )
                await stack.enter_async_context(context)

            watch = SettingsWatch(use.register, use.home, clock)
            stack.push_async_callback(SupervisedTask("etcd.settings", watch.run).close)

        if use.discover is not None:
            from moorage.common.etcd.discovery import ManagerDiscovery

            discovery = ManagerDiscovery(use.discover, use.memory)

            async def look() -> None:
                failing = [
                    dialer.redial
                    for dialer in dialers(entered)
                    if dialer is not None and dialer.redial.is_failing
                ]
                if failing:
                    await discovery.look(failing)

            loop = Loop("etcd.discovery", look, interval_s=DISCOVERY_S, clock=clock)
            await stack.enter_async_context(loop)

        yield entered
