"""Calls for watching: counts by resource group, and who holds which device."""

from __future__ import annotations

from datetime import datetime

from moorage.common.views.events import AgentOccupancy, OccupancyHistory, Overview, Step
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport


class WatchCalls(Transport):
    async def overview(self) -> Overview:
        return await self.call(Overview, "GET", "/v1/overview")

    async def occupancy(
        self,
        *,
        resource_group: str | None = None,
        agent: str | None = None,
        cursor: str | None = None,
        limit: int = 500,
    ) -> Page[AgentOccupancy]:
        """One page, by agent. Pass its ``next`` as ``cursor`` for the next page."""
        query = {"resource_group": resource_group, "agent": agent, "cursor": cursor, "limit": str(limit)}
        return await self.call(Page[AgentOccupancy], "GET", "/v1/occupancy", query=query)

    async def occupancy_history(
        self,
        *,
        resource_group: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: Step | None = None,
    ) -> OccupancyHistory:
        """By default of the last day, of all resource groups, by the shortest step that suits."""
        query = {
            "resource_group": resource_group,
            "from": since.isoformat() if since else None,
            "to": until.isoformat() if until else None,
            "step": step,
        }
        return await self.call(OccupancyHistory, "GET", "/v1/occupancy/history", query=query)
