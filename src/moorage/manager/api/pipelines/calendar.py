"""Handler for the calendar: what starts when, and what has run."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from pydantic import Field

from moorage.common.model.errors import InvalidInput
from moorage.common.model.paging import MAX_LIMIT, Paging
from moorage.common.model.spec import Model
from moorage.common.model.status import Status
from moorage.common.model.timestamps import Timestamp
from moorage.common.views.calendar import Calendar, CalendarEntry, CalendarKind
from moorage.manager.api.http.route import Call, route
from moorage.manager.workloads.cron_calendar import coming, grouped
from moorage.manager.workloads.cron_times import CronTimes

LONGEST = timedelta(days=62)
_PENDING = frozenset({Status.PENDING})
# Sessions for which an expected start is computed. Each takes as long as `moorage why`.
_MOST_EXPECTED = 20


class CalendarQuery(Model):
    start: Timestamp = Field(description="Begin of the period.")
    end: Timestamp = Field(description="End of the period, at most 62 days after its begin.")


@route(
    "GET",
    "/v1/calendar",
    "Show past and coming runs of cron jobs, and starts of pending sessions, in a period",
    query=CalendarQuery,
    returns=Calendar,
    access="viewer",
)
async def get_calendar(call: Call[None, CalendarQuery]) -> Calendar:
    start = call.query.start
    end = call.query.end
    if not timedelta() < end - start <= LONGEST:
        raise InvalidInput(
            f"the period from {start.isoformat()} to {end.isoformat()} is not possible",
            field="end",
            where="query",
            next_step="choose an end after the start, at most 62 days later",
        )

    jobs = call.deps.store.cron_jobs
    now = await jobs.now()
    past = await jobs.runs_between(call.scope, start, end, Paging(MAX_LIMIT))
    found = await jobs.page(call.scope, Paging(MAX_LIMIT))
    entries = list(
        grouped(
            CalendarEntry(
                kind=CalendarKind.RUN,
                at=run.scheduled_at,
                name=run.cron_job,
                ref=run.cron_job_id,
                state=run.state,
                session_id=run.session_id,
                pipeline_id=run.pipeline_id,
            )
            for run in past.items
        )
    )
    after = max(start, now)
    for job in found.items:
        if job.next_at is not None and job.next_at < end and after < end:
            # In a thread, because a cron job of every minute has thousands of times.
            entries += await asyncio.to_thread(
                coming, job.name, job.id, CronTimes.of(job.spec), after=after, until=end
            )

    entries += await _pending(call, start, end)
    entries.sort(key=lambda entry: (entry.at, entry.name))
    complete = past.next is None and found.next is None
    return Calendar(entries=entries, complete=complete)


async def _pending(call: Call[Any, Any], start: datetime, end: datetime) -> list[CalendarEntry]:
    """Sessions with a begin time, and the expected starts of other pending sessions."""
    page = await call.deps.store.sessions.page(call.scope, Paging(MAX_LIMIT), statuses=_PENDING)
    entries = []
    asked = 0
    for session in page.items:
        at = session.spec.starts_at
        kind = CalendarKind.SESSION
        if (at is None or at <= start) and asked < _MOST_EXPECTED:
            asked += 1
            kind = CalendarKind.EXPECTED
            at = (await call.deps.explanations.why(call.scope, session.id)).expected_start

        if at is not None and start <= at < end:
            entries.append(CalendarEntry(kind=kind, at=at, name=session.name, ref=session.id))

    return entries
