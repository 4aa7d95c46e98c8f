"""A harness for registration tests: a real manager with mTLS on its links, and nodes that join
it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
import pytest_asyncio
from tests.wire.manager_harness import GRACE_S

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.common.link.dial import Dialer
from moorage.common.link.identity import Identity, identity_file
from moorage.common.views.peers import JoinTokenSpec, PeerKind
from moorage.manager import Manager
from moorage.sdk import Client
from moorage.server.registration import join


class SkewedClock(SystemClock):
    """A clock that is off by ``by``."""

    def __init__(self, by: timedelta = timedelta(0)) -> None:
        self.by = by

    def now(self) -> datetime:
        return super().now() + self.by


@dataclass
class Site:
    """The manager, its database, an administrator's client, and state directories below
    ``home``."""

    manager: Manager
    client: Client
    home: Path
    dsn: str

    @property
    def url(self) -> str:
        return f"http://{self.manager.api_address}"

    async def token(self, **spec: object) -> str:
        return (await self.client.join_tokens.create(JoinTokenSpec.model_validate(spec))).secret

    async def join(
        self,
        name: str = "node-1",
        token: str | None = None,
        *,
        kind: PeerKind = "agent",
        node: str = "",
        clock: SystemClock | None = None,
    ) -> Identity:
        """``node``: the name of the state directory, which defaults to ``name``."""
        token = token or await self.token(kind=kind)
        clock = clock or SystemClock()
        home = self.home / (node or name)

        return await join(self.url, token, kind=kind, name=name, home=home, clock=clock)

    def dialer(
        self,
        name: str = "node-1",
        *,
        kind: PeerKind = "agent",
        node: str = "",
        clock: SystemClock | None = None,
        target: str = "",
    ) -> Dialer:
        file = identity_file(self.home / (node or name), kind, name)
        return Dialer(
            target or self.manager.link_address, identity=file, clock=clock or SystemClock()
        )

    async def sql(self, statement: str) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsn)
        try:
            rows: list[asyncpg.Record] = await connection.fetch(statement)
            return rows
        finally:
            await connection.close()


@pytest_asyncio.fixture
async def site(migrated_database: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(migrated_database, tmp_path) as running:
        yield running


class open_site:
    """``days``: the lifetime of peer certificates. ``agent_addresses``, ``proxy_addresses``: the
    settings of the same names. ``grace_s``: how long until an agent is SUSPECT, and then LOST."""

    def __init__(
        self,
        dsn: str,
        home: Path,
        *,
        days: float = 90,
        agent_addresses: tuple[str, ...] = (),
        proxy_addresses: tuple[str, ...] = (),
        clock: SystemClock | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        listen = {"listen": "127.0.0.1:0", "link_listen": "127.0.0.1:0"}
        graces = {"suspect_after_s": grace_s, "lost_grace_s": grace_s}
        settings = ManagerSettings(
            dsn=dsn,
            certificate_days=days,
            agent_addresses=agent_addresses,
            proxy_addresses=proxy_addresses,
            **listen,
            **graces,
        )
        self._dsn = dsn
        self._home = home
        clock = clock or SystemClock()
        self._manager = Manager(
            settings, clock=clock, link_token="unused", home=home, link_tls="on"
        )
        self._client: Client | None = None

    async def __aenter__(self) -> Site:
        await self._manager.__aenter__()
        key = (self._home / "admin-key").read_text().strip()
        self._client = Client(f"http://{self._manager.api_address}", key)
        await self._client.__aenter__()
        return Site(self._manager, self._client, self._home, self._dsn)

    async def __aexit__(self, *exc: object) -> None:
        assert self._client is not None
        await self._client.__aexit__(None, None, None)
        await self._manager.__aexit__(*exc)
