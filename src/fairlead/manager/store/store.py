"""The store as one object: what the loops, the links and the API hold."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from fairlead.common.clock import Clock
from fairlead.common.loop import Loop
from fairlead.common.messages import RouteTable
from fairlead.manager.store.access import Access
from fairlead.manager.store.agents import Agents
from fairlead.manager.store.bell import Bell
from fairlead.manager.store.check import Checks
from fairlead.manager.store.db import Database
from fairlead.manager.store.decisions import Decisions
from fairlead.manager.store.endpoints import Endpoints
from fairlead.manager.store.fits import Fits
from fairlead.manager.store.groups import Groups
from fairlead.manager.store.members import Members
from fairlead.manager.store.permits import Permits
from fairlead.manager.store.planning import Planning
from fairlead.manager.store.queries import SQL
from fairlead.manager.store.quotas import Quotas
from fairlead.manager.store.reports import BEATS_EVERY_S
from fairlead.manager.store.sessions import Sessions
from fairlead.manager.store.usage import UsageStore
from fairlead.manager.store.whys import Whys


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
    Members,
    Permits,
):
    """All SQL, by intent. Methods raise ``StoreUnavailable`` while Postgres is away.

    ``database``: connections of another make, for a world whose faults are scripted.
    """

    def __init__(
        self, dsn: str, clock: Clock, *, lost_grace_s: float = 120.0, database: Database | None = None
    ) -> None:
        self._db = database or Database(dsn)
        self.bell = Bell(dsn, clock)
        Sessions.__init__(self, self._db, self.bell, clock, lost_grace_s)
        Planning.__init__(self, self._db, self.bell, clock, self, self)
        Groups.__init__(self, self._db, self.bell)
        Quotas.__init__(self, self._db, self.bell)
        Fits.__init__(self, self._db, clock)
        Agents.__init__(self, self._db, self.bell, clock)
        Endpoints.__init__(self, self._db, self.bell, clock)
        Access.__init__(self, self._db, self.bell, clock)
        Checks.__init__(self, self._db, self.bell)
        Whys.__init__(self, self._db, clock, self, self, self, self)
        Decisions.__init__(self, self._db)
        UsageStore.__init__(self, self._db, self)
        Members.__init__(self, self._db, self.bell, clock)
        Permits.__init__(self, self._db, self.bell, clock)
        self._beating = Loop("beats", self.write_beats, interval_s=BEATS_EVERY_S, clock=clock)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Store:
        await self._stack.enter_async_context(self._db)
        await self._stack.enter_async_context(self.bell)
        await self._stack.enter_async_context(self._beating)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def route_table(self) -> RouteTable:
        """What proxies should know now; generation 0, since whoever sends it numbers it."""
        models = await self.routes(self)
        return replace(models, apps=await self.app_routes(), permits=await self.permit_grants())

    async def counts(self) -> list[tuple[str, str, str, int]]:
        """(session | agent, status, resource group, how many), for metrics."""
        found = await self._db.fetch(SQL["counts"])
        return [(row["kind"], row["status"], row["resource_group"], row["n"]) for row in found]

    async def forget_old(self, days: int) -> int:
        """Delete sessions that ended ``days`` ago, at most a thousand; returns how many."""
        return len(await self._db.fetch(SQL["history_sweep"], days))
