"""Handlers for the scheduler's decisions and passes, and for past sessions."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, model_validator

from moorage.common.model.errors import Conflict, InvalidInput
from moorage.common.model.spec import NoNul
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.decisions import DecisionPage, PassView, RunView, SegmentView
from moorage.common.views.resources import Page
from moorage.manager.api.http.listing import PageQuery
from moorage.manager.api.http.route import Call, route
from moorage.manager.decision_log import CorruptDecisionLog
from moorage.manager.decision_log.summaries import summaries
from moorage.manager.decision_log.timeline import unix_micros
from moorage.manager.store.database.cursors import read_number_cursor

# One page reads at most this much: snapshots with the passes after them, which are about five
# minutes each, and pages of segments, which the store limits in bytes.
_SNAPSHOTS = 12
_SEGMENT_PAGES = 8
_SEGMENTS = 500
_MICROSECOND = timedelta(microseconds=1)


class TimeRangeQuery(PageQuery):
    group: NoNul = Field("default", description="A resource group.")
    from_: Annotated[Timestamp, Field(alias="from", description="Time in RFC 3339 with an offset.")]
    to: Timestamp

    @model_validator(mode="after")
    def _in_order(self) -> TimeRangeQuery:
        if self.from_ > self.to:
            raise ValueError(f"from = {self.from_.isoformat()} is after to = {self.to.isoformat()}")
        return self


@route(
    "GET",
    "/v1/scheduler/decisions",
    "List the scheduler's decisions in a time range, with their inputs",
    query=TimeRangeQuery,
    returns=DecisionPage,
    access="auditor",
)
async def list_scheduler_decisions(call: Call[None, TimeRangeQuery]) -> DecisionPage:
    query = call.query
    store = call.deps.store
    await store.groups.get(query.group)
    return await store.decisions.page(
        call.scope, query.group, query.from_, query.to, cursor=query.cursor, limit=query.limit
    )


class PassQuery(TimeRangeQuery):
    session: NoNul | None = Field(
        None, description="Id: only passes that place, preempt or hold this session."
    )


@route(
    "GET",
    "/v1/scheduler/passes",
    "List the passes of the scheduler in a time range, newest first, without their inputs",
    query=PassQuery,
    returns=Page[PassView],
    access="auditor",
)
async def list_scheduler_passes(call: Call[None, PassQuery]) -> Page[PassView]:
    """A page may have fewer passes than its limit, or none, and a ``next``: each page reads a
    bounded part of the log."""
    query = call.query
    store = call.deps.store
    await store.groups.get(query.group)
    end = query.to
    if query.cursor is not None:
        whole = (query.to - query.from_) // _MICROSECOND
        end = query.from_ + min(read_number_cursor(query.cursor), whole) * _MICROSECOND

    found: list[PassView] = []
    begin = await store.decisions.snapshot_before(call.scope, query.group, end)
    for _ in range(_SNAPSHOTS):
        if begin is None or found:
            break

        found = await _passes(call, max(begin, query.from_), end)
        if len(found) > query.limit:
            found = found[: query.limit]
            return _page(query, found, found[-1].at - _MICROSECOND)
        if begin <= query.from_:
            return _page(query, found, None)

        end = begin - _MICROSECOND
        begin = await store.decisions.snapshot_before(call.scope, query.group, end)

    return _page(query, found, end if begin is not None else None)


def _page(query: PassQuery, found: list[PassView], end: datetime | None) -> Page[PassView]:
    """``end``: where the next page begins, which its cursor has as the time since ``from``."""
    if end is None or end < query.from_:
        return Page[PassView](items=found, next=None)
    return Page[PassView](items=found, next=str((end - query.from_) // _MICROSECOND))


async def _passes(call: Call[None, PassQuery], since: datetime, until: datetime) -> list[PassView]:
    """The passes between two times, newest first. They are decoded in a thread."""
    query = call.query
    segments: list[SegmentView] = []
    cursor = None
    for _ in range(_SEGMENT_PAGES):
        page = await call.deps.store.decisions.page(
            call.scope, query.group, since, until, cursor=cursor, limit=_SEGMENTS
        )
        segments += page.items
        cursor = page.next
        if cursor is None:
            break
    else:
        raise InvalidInput(
            f"the log of resource group {query.group!r} from {since.isoformat()} to "
            f"{until.isoformat()} is too long for one page",
            next_step="give an earlier `to`, or read it with `moorage scheduler log`",
            field="to",
        )

    begin, end = unix_micros(since), unix_micros(until)
    try:
        return await asyncio.to_thread(summaries, segments, begin, end, session=query.session or "")
    except CorruptDecisionLog as error:
        raise Conflict(str(error), next_step=error.next_step) from error


@route(
    "GET",
    "/v1/scheduler/runs",
    "List the sessions that ran in a time range, with their allocations",
    query=TimeRangeQuery,
    returns=Page[RunView],
    access="auditor",
)
async def list_scheduler_runs(call: Call[None, TimeRangeQuery]) -> Page[RunView]:
    query = call.query
    store = call.deps.store
    await store.groups.get(query.group)
    return await store.decisions.runs(
        call.scope, query.group, query.from_, query.to, cursor=query.cursor, limit=query.limit
    )
