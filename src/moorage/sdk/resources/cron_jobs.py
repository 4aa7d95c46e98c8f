"""Cron jobs: sessions and pipelines that start at the times of a cron expression."""

from __future__ import annotations

from datetime import datetime

from moorage.common.model.cron_jobs import CronJobSpec, CronTimesSpec, NewCronJob
from moorage.common.views.calendar import Calendar
from moorage.common.views.cron_jobs import CronJobView, CronRunView, CronTimesView
from moorage.sdk.paged_list import PagedList
from moorage.sdk.resource import Resource, SyncResource, blocking, listed
from moorage.sdk.transport import etag, segment


class CronJobs(Resource):
    """Cron jobs: sessions and pipelines that start at the times of a cron expression."""

    async def create(self, job: NewCronJob) -> CronJobView:
        return await self._call(CronJobView, "POST", "/v1/cron-jobs", body=job)

    async def plan(self, times: CronTimesSpec, *, count: int = 5) -> CronTimesView:
        """The next times of a cron expression. Creates nothing."""
        query = {"count": str(count)}
        return await self._call(
            CronTimesView, "POST", "/v1/cron-jobs/plan", query=query, body=times
        )

    def list(
        self, *, project: str | None = None, user: str | None = None, search: str | None = None
    ) -> PagedList[CronJobView]:
        """Cron jobs by name, each with its newest run. ``search``: a part of the name."""
        query = {"project": project, "user": user, "search": search}
        return self._list(CronJobView, "/v1/cron-jobs", query)

    async def get(self, ref: str) -> CronJobView:
        return await self._call(CronJobView, "GET", f"/v1/cron-jobs/{segment(ref)}")

    def runs(self, ref: str) -> PagedList[CronRunView]:
        """The runs of a cron job, newest first."""
        return self._list(CronRunView, f"/v1/cron-jobs/{segment(ref)}/runs")

    async def calendar(self, start: datetime, end: datetime) -> Calendar:
        """Past and coming runs of all cron jobs, and starts of pending sessions, in a period of at
        most 62 days."""
        query = {"start": start.isoformat(), "end": end.isoformat()}
        return await self._call(Calendar, "GET", "/v1/calendar", query=query)

    async def put(self, ref: str, spec: CronJobSpec, *, version: int | None = None) -> CronJobView:
        """Replace the specification. ``version``: refuse (412) if it has another version now."""
        return await self._call(
            CronJobView,
            "PUT",
            f"/v1/cron-jobs/{segment(ref)}",
            body=spec,
            if_match=etag(version),
        )

    async def delete(self, ref: str) -> CronJobView:
        """Delete a cron job with the records of its runs. Its sessions and pipelines stay."""
        return await self._call(CronJobView, "DELETE", f"/v1/cron-jobs/{segment(ref)}")

    async def suspend(self, ref: str) -> CronJobView:
        """Start no more runs until ``resume``."""
        return await self._call(CronJobView, "POST", f"/v1/cron-jobs/{segment(ref)}/suspend")

    async def resume(self, ref: str) -> CronJobView:
        return await self._call(CronJobView, "POST", f"/v1/cron-jobs/{segment(ref)}/resume")

    async def run(self, ref: str) -> CronRunView:
        """Start a run now, also while the cron job is suspended."""
        return await self._call(CronRunView, "POST", f"/v1/cron-jobs/{segment(ref)}/run")


class SyncCronJobs(SyncResource[CronJobs]):
    """``CronJobs`` without asyncio."""

    create = blocking(CronJobs.create)
    plan = blocking(CronJobs.plan)
    list = listed(CronJobs.list)
    get = blocking(CronJobs.get)
    runs = listed(CronJobs.runs)
    calendar = blocking(CronJobs.calendar)
    put = blocking(CronJobs.put)
    delete = blocking(CronJobs.delete)
    suspend = blocking(CronJobs.suspend)
    resume = blocking(CronJobs.resume)
    run = blocking(CronJobs.run)
