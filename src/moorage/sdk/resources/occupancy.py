"""Occupancy: counts by resource group, and who holds which device."""

from __future__ import annotations

from datetime import datetime

from moorage.common.views.events import AgentOccupancy, OccupancyHistory, Overview, Step
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed, time_window


class Occupancy(Resource):
    """Occupancy: counts by resource group, and who holds which device."""

    async def overview(self) -> Overview:
        return await self._call(Overview, "GET", "/v1/overview")

    def list(
        self,
        *,
        resource_group: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
    ) -> PagedList[AgentOccupancy]:
        """Occupancy by agent. ``limit``: the most to return; None means all."""
        query = {"resource_group": resource_group, "agent": agent}
        return self._list(AgentOccupancy, "/v1/occupancy", query, limit=limit)

    async def history(
        self,
        *,
        resource_group: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Step | None = None,
    ) -> OccupancyHistory:
        """By default, covers the last day and all resource groups, in the shortest suitable
        steps."""
        query = {"resource_group": resource_group, **time_window(since, until, step)}
        return await self._call(OccupancyHistory, "GET", "/v1/occupancy/history", query=query)


class SyncOccupancy(SyncResource[Occupancy]):
    """``Occupancy`` without asyncio."""

    overview = blocking(Occupancy.overview)
    list = listed(Occupancy.list)
    history = blocking(Occupancy.history)
