"""The scheduler's decision log, for administrators."""

from __future__ import annotations

from datetime import datetime

from moorage.common.views.decisions import DecisionPage, PassView, RunView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed


class Decisions(Resource):
    """The scheduler's decision log, for administrators."""

    async def page(
        self,
        group: str,
        since: datetime,
        until: datetime,
        *,
        cursor: str | None = None,
        limit: int = 200,
    ) -> DecisionPage:
        """One page of the log segments that cover the decisions between the two times, oldest
        first. Pass its ``next`` as ``cursor`` to get the next page."""
        query = _span(group, since, until) | {"cursor": cursor, "limit": str(limit)}
        return await self._call(DecisionPage, "GET", "/v1/scheduler/decisions", query=query)

    def passes(
        self, group: str, since: datetime, until: datetime, *, session: str | None = None
    ) -> PagedList[PassView]:
        """The passes of the scheduler between the two times, newest first, without their inputs.
        ``session``: only those in which the session with this id waited, was placed or was
        preempted."""
        query = _span(group, since, until) | {"session": session}
        return self._list(PassView, "/v1/scheduler/passes", query)

    def runs(
        self,
        group: str,
        since: datetime,
        until: datetime,
    ) -> PagedList[RunView]:
        """The kernels that held resources between the two times."""
        query = _span(group, since, until)
        return self._list(RunView, "/v1/scheduler/runs", query)


def _span(group: str, since: datetime, until: datetime) -> dict[str, str | None]:
    return {"group": group, "from": since.isoformat(), "to": until.isoformat()}


class SyncDecisions(SyncResource[Decisions]):
    """``Decisions`` without asyncio."""

    page = blocking(Decisions.page)
    passes = listed(Decisions.passes)
    runs = listed(Decisions.runs)
