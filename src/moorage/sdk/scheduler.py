"""Calls about the scheduler's decision log. For administrators."""

from __future__ import annotations

from datetime import datetime

from moorage.common.views.decisions import DecisionPage, RunView
from moorage.common.views.resources import Page
from moorage.sdk.transport import Transport


class SchedulerCalls(Transport):
    async def list_decisions(
        self,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None = None,
        limit: int = 200,
    ) -> DecisionPage:
        """The log segments that cover the decisions between the two times, oldest first."""
        query = _query(group, since, until=until, cursor=cursor, limit=limit)
        return await self.call(DecisionPage, "GET", "/v1/scheduler/decisions", query=query)

    async def list_runs(
        self,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None = None,
        limit: int = 500,
    ) -> Page[RunView]:
        """The kernels that held resources between the two times."""
        query = _query(group, since, until=until, cursor=cursor, limit=limit)
        return await self.call(Page[RunView], "GET", "/v1/scheduler/runs", query=query)


def _query(
    group: str, since: datetime, until: datetime, cursor: str | None, *, limit: int
) -> dict[str, str | None]:
    times = {"from": since.isoformat(), "to": until.isoformat()}
    return {"group": group, **times, "cursor": cursor, "limit": str(limit)}
