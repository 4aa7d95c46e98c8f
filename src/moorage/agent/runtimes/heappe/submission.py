"""Submission of a job, which is found or created, given its launch file, and submitted once.

If the answer to a creation is lost, it leaves at most a row that runs nothing, so the job is
searched for by its name. If the answer to a submission is lost, the job may run, so the submission
is never repeated and the job is watched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from moorage.agent.runtimes.base import CreateFailed, Launch
from moorage.agent.runtimes.heappe import wire
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.listing import HeappeListing
from moorage.agent.runtimes.heappe.records import HeappeRecord
from moorage.agent.runtimes.heappe.site import (
    JobPlace,
    SiteChoice,
    find_place,
    launch_file,
    parameters,
    specification,
)
from moorage.common.aio.clock import Clock
from moorage.common.model.reasons import Reason

log = structlog.get_logger("moorage.agent.heappe")
_LAUNCH = "launch.json"
# Text that `sbatch` prints only when it has accepted nothing.
_REFUSED = "batch job submission failed"
# It then failed by itself, without a controller having judged the job.
_UNHEARD = "unable to contact"
_PLACES_S = 600.0


class Submitter:
    """A submitter. ``heartbeat_s``: a serving job exits after this long without a request."""

    def __init__(
        self, client: HeappeClient, listing: HeappeListing, clock: Clock, heartbeat_s: float
    ) -> None:
        self._client = client
        self._listing = listing
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._places: dict[str, tuple[float, list[wire.NodeType]]] = {}
        self._takes_files = True

    async def submit(
        self,
        record: HeappeRecord,
        launch: Launch,
        wanted: SiteChoice,
        save: Callable[[HeappeRecord], Awaitable[None]],
    ) -> HeappeRecord:
        """Submit a job. ``save`` is called before each step that may have an effect. Raises
        ``CreateFailed`` only if the job certainly does not run."""
        try:
            await self._listing.refresh()
            found = self._listing.of(record.name)
            if submitted := [job for job in found if job.state is not wire.JobState.CONFIGURING]:
                # A job from an earlier run of this agent, which lost its record.
                return _of_job(record, submitted[0], submitted=True)

            for job in found:
                # The answer to its creation was lost. A submission would have left a record.
                await self._drop(job.id)

            place = await self.place(wanted)
            job = await self._create(record, launch, place)
        except HeappeFailed as error:
            raise _create_failed(error) from None

        record = replace(
            _of_job(record, job),
            cluster_id=place.node_type.cluster_id,
            walltime_s=float(place.walltime_s),
            created_at=self._clock.now().timestamp(),
        )
        await save(record)
        return await self._submit(record, save)

    async def place(self, wanted: SiteChoice) -> JobPlace:
        """The place for the job. Raises ``CreateFailed`` if there is no such place, and
        ``HeappeFailed`` if there is no answer."""
        now = self._clock.monotonic()
        known = self._places.get(wanted.project)
        if known is not None and now - known[0] < _PLACES_S:
            try:
                return find_place(wanted, known[1])
            except CreateFailed:
                pass  # the template may be new

        node_types = await self._client.node_types(wanted.project, refresh=True)
        self._places[wanted.project] = now, node_types
        return find_place(wanted, node_types)

    async def _create(
        self, record: HeappeRecord, launch: Launch, place: JobPlace
    ) -> wire.HeappeJob:
        blob = launch_file(launch, self._heartbeat_s)
        while True:
            values = parameters(place.template, b"" if self._takes_files else blob)
            body = specification(
                record.name, record.kernel_id, place=place, slots=launch.slots, values=values
            )
            job = await self._created(record.name, body)
            if not self._takes_files:
                return job

            try:
                await self._client.upload(job.id, job.task.id, _LAUNCH, blob)
            except HeappeFailed as error:
                await self._drop(job.id)
                if error.problem is not SiteFault.NO_ROUTE:
                    raise

                log.warning(
                    "the server accepts no files: commands and secrets go in parameters",
                    why=str(error),
                )
                self._takes_files = False
            else:
                return job

    async def _created(self, name: str, body: dict[str, object]) -> wire.HeappeJob:
        try:
            return await self._client.create_job(body)
        except HeappeFailed as error:
            if not error.in_doubt:
                raise

            # A leftover row runs nothing. It is used if it exists. Otherwise, nothing was created.
            await self._listing.refresh()
            found = [job for job in self._listing.of(name) if job.task.id]
            if not found:
                raise

            return found[0]

    async def _submit(
        self, record: HeappeRecord, save: Callable[[HeappeRecord], Awaitable[None]]
    ) -> HeappeRecord:
        # If the agent dies in between, its next run finds a submission in doubt.
        record = replace(record, submitting_at=self._clock.now().timestamp())
        await save(record)
        try:
            await self._client.submit_job(record.job_id, record.cluster_id)
        except HeappeFailed as error:
            if error.in_doubt and _REFUSED not in error.detail.lower():
                log.warning(
                    "a submission was not answered; watching the job",
                    job=record.name,
                    why=error.message,
                )
                # The call may have taken a long time.
                return replace(record, submitting_at=self._clock.now().timestamp())

            if error.problem is not SiteFault.STATE:  # the job was already submitted
                await self._drop(record.job_id)
                raise _create_failed(error) from None

        record = replace(record, submitted=True)
        await save(record)
        return record

    async def _drop(self, job_id: int) -> None:
        """Delete a job that was not submitted. If that fails, the next sweep deletes it."""
        try:
            await self._client.delete_job(job_id)
        except HeappeFailed as error:
            log.info("a job that was not submitted was not deleted", job=job_id, why=error.message)


def _of_job(record: HeappeRecord, job: wire.HeappeJob, submitted: bool = False) -> HeappeRecord:
    return replace(record, job_id=job.id, task_id=job.task.id, submitted=submitted)


def _create_failed(error: HeappeFailed) -> CreateFailed:
    is_refusal = _REFUSED in error.detail.lower() and _UNHEARD not in error.detail.lower()
    is_outage = error.is_outage and not is_refusal
    reason = Reason.RUNTIME_UNAVAILABLE if is_outage else Reason.CREATE_FAILED
    return CreateFailed(error.message, reason=reason, clean=True, next_step=error.next_step)
