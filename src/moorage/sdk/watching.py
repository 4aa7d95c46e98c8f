"""Calls for watching: events, counts by resource group, and who holds which device."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import closing
from datetime import datetime

from moorage.common.views.events import AgentOccupancy, EventKind, OccupancyHistory, Overview, Step
from moorage.common.views.resources import Page
from moorage.sdk.event_stream import EventParser, ServerEvent
from moorage.sdk.transport import Transport


class WatchCalls(Transport):
    async def events(
        self, *kinds: EventKind, about: str | None = None, after: str = ""
    ) -> AsyncGenerator[ServerEvent]:
        """What happens from now on, or after the event with the id ``after``: ``kind`` and
        ``data``, JSON as in the schema of the kind. The kind "reset" tells that some events are
        lost. ``kinds``, ``about``: as for ``changes``. Ends when the manager ends the stream, as it
        does when the rights of the key have changed. Raises ``ApiError`` and ``Unreachable``, and
        ``OSError`` when the connection breaks."""
        query = {"kinds": ",".join(sorted(kinds)) or None, "about": about}
        headers = {"Last-Event-ID": after} if after else {}
        parser = EventParser()
        with closing(
            await self.stream("/v1/events", query, headers, begin_s=self.timeout)
        ) as stream:
            while (piece := await stream.next_piece()) is not None:
                for event in parser.feed(piece):
                    if event.kind not in ("", "ready"):
                        yield event

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
        query = {
            "resource_group": resource_group,
            "agent": agent,
            "cursor": cursor,
            "limit": str(limit),
        }
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
