"""The store as one object: what the loops, the links and the API hold."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.link.messages import RouteTable
from moorage.manager.store.access_tokens import AccessTokens
from moorage.manager.store.agents import Agents
from moorage.manager.store.database import Database
from moorage.manager.store.decisions import Decisions
from moorage.manager.store.endpoints import Endpoints
from moorage.manager.store.explain import Whys
from moorage.manager.store.feasibility import Fits
from moorage.manager.store.groups import Groups
from moorage.manager.store.integrity import Checks
from moorage.manager.store.keys import Access
from moorage.manager.store.notifier import Notifier
from moorage.manager.store.peers import Peers
from moorage.manager.store.queries import SQL
from moorage.manager.store.quotas import Quotas
from moorage.manager.store.reports import BEATS_EVERY_S
from moorage.manager.store.scheduling import Planning
from moorage.manager.store.sessions import Sessions
from moorage.manager.store.usage import UsageStore


class Store(
    Sessions,
    Planning,
    Groups,
    Quotas,
    Fits,
    Agents,
    Endpoints,
    Access,
    Checks,
    Whys,
    Decisions,
    UsageStore,
    Peers,
    AccessTokens,
):
    """All SQL, by intent. Methods raise ``StoreUnavailable`` while Postgres is away.

    ``database``: connections of another make, for a world whose faults are scripted.
    """

    def __init__(
        self, dsn: str, clock: Clock, *, lost_grace_s: float = 120.0, database: Database | None = None
    ) -> None:
        self._db = database or Database(dsn)
        self.notifier = Notifier(dsn, clock)
        Sessions.__init__(self, self._db, self.notifier, clock, lost_grace_s)
        Planning.__init__(self, self._db, self.notifier, clock, self, self)
        Groups.__init__(self, self._db, self.notifier)
        Quotas.__init__(self, self._db, self.notifier)
        Fits.__init__(self, self._db, clock)
        Agents.__init__(self, self._db, self.notifier, clock)
        Endpoints.__init__(self, self._db, self.notifier, clock)
        Access.__init__(self, self._db, self.notifier, clock)
        Checks.__init__(self, self._db, self.notifier)
        Whys.__init__(self, self._db, clock, self, self, self, self)
        Decisions.__init__(self, self._db)
        UsageStore.__init__(self, self._db, self)
        Peers.__init__(self, self._db, self.notifier, clock)
        AccessTokens.__init__(self, self._db, self.notifier, clock)
        self._beating = Loop("beats", self.write_beats, interval_s=BEATS_EVERY_S, clock=clock)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Store:
        await self._stack.enter_async_context(self._db)
        await self._stack.enter_async_context(self.notifier)
        await self._stack.enter_async_context(self._beating)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def route_table(self) -> RouteTable:
        """What proxies should know now; generation 0, since whoever sends it numbers it."""
        models = await self.routes(self)
        return replace(models, apps=await self.app_routes(), access_tokens=await self.access_token_grants())

    async def counts(self) -> list[tuple[str, str, str, int]]:
        """(session | agent, status, resource group, how many), for metrics."""
        found = await self._db.fetch(SQL["counts"])
        return [(row["kind"], row["status"], row["resource_group"], row["n"]) for row in found]

    async def forget_old(self, days: int) -> int:
        """Delete sessions that ended ``days`` ago, at most a thousand; returns how many."""
        return len(await self._db.fetch(SQL["history_sweep"], days))
