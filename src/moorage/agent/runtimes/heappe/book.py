"""Job book: one list from the site for all jobs, and the consequences for each job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from moorage.agent.runtimes.base import RuntimeObservation
from moorage.agent.runtimes.batch.doubts import DoubtLedger
from moorage.agent.runtimes.heappe.client import HeappeClient
from moorage.agent.runtimes.heappe.errors import HeappeFailed, SiteFault
from moorage.agent.runtimes.heappe.interpretation import (
    DOUBT_S,
    SETTLE_S,
    Doubt,
    Interpretation,
    cancel_due,
    interpret,
)
from moorage.agent.runtimes.heappe.listing import HeappeListing, Seen, kernel_of
from moorage.agent.runtimes.heappe.records import HeappeRecord, JobRecords
from moorage.agent.runtimes.heappe.relay import Relay
from moorage.agent.runtimes.heappe.tracked import (
    JobLogs,
    Told,
    TrackedJob,
    progress_of,
    shown,
    target_of,
)
from moorage.agent.runtimes.heappe.tunnel import TunnelKeeper
from moorage.agent.runtimes.heappe.wire import ACTIVE, DELETABLE, ENDED, HeappeJob, JobState
from moorage.agent.state.ports import NoFreePort
from moorage.common.aio.clock import Clock
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import DoubtfulJob
from moorage.common.model.status import ObservedState

log = structlog.get_logger("moorage.agent.heappe")
# With many jobs, each is queried less often, because they share the calls.
_PROBE_S = 60.0
_PROBE_PER_JOB_S = 3.0
_LONGEST_PROBE_S = 240.0
# Attempts to read a job's final record before it is considered ended without one.
_END_ATTEMPTS = 3
_AT_ONCE = 16
# Tunnels that are reopened concurrently.
_RENEWALS = 4
_KILLED = -9


class JobBook:
    """An agent's jobs. ``listing``: the site's list. All other methods cover only this agent's
    jobs."""

    def __init__(
        self,
        client: HeappeClient,
        records: JobRecords,
        logs: JobLogs,
        clock: Clock,
        *,
        agent: str,
        host: str,
        allocate: Callable[[], int],
        release: Callable[[int], None],
        per_job: bool,
        unreachable_timeout_s: float,
    ) -> None:
        self._unreachable_timeout_s = unreachable_timeout_s
        self._renewals = asyncio.Semaphore(_RENEWALS)
        self._client = client
        self._records = records
        self._logs = logs
        self._clock = clock
        self._host = host
        self._allocate = allocate
        self._release = release
        self.listing = HeappeListing(client, agent, clock, per_job=lambda: per_job)
        self._jobs: dict[KernelId, TrackedJob] = {}
        self._syncing = asyncio.Lock()
        self._doubts = DoubtLedger(records.folder / f"doubtful-{agent}", "heappe", clock)

    async def close(self) -> None:
        await asyncio.gather(
            *(job.relay.close() for job in self._jobs.values() if job.relay is not None)
        )

    def track(self, record: HeappeRecord) -> TrackedJob:
        job = self._jobs.get(record.kernel_id)
        if job is None:
            job = self._jobs[record.kernel_id] = TrackedJob(record)
        job.record = record
        return job

    def is_tracked(self, kernel_id: KernelId) -> bool:
        return kernel_id in self._jobs

    @property
    def is_starting(self) -> bool:
        """Whether a job is running whose engine has not been reached yet."""
        return any(
            job.record.serves
            and job.record.running_at
            and not job.end_read
            and (job.keeper is None or job.keeper.reach.answered_at is None)
            for job in self._jobs.values()
        )

    @property
    def probe_s(self) -> float:
        return min(max(_PROBE_S, _PROBE_PER_JOB_S * len(self._jobs)), _LONGEST_PROBE_S)

    async def job(self, kernel_id: KernelId) -> TrackedJob | None:
        """The job; None if there is no record of it."""
        if (job := self._jobs.get(kernel_id)) is not None:
            return job
        record = await asyncio.to_thread(self._records.read, kernel_id)
        return self.track(record) if record is not None and record.job_id else None

    def interpret(self, job: TrackedJob) -> Interpretation:
        found = interpret(job.facts(self._clock, self.listing.refusal), self._unreachable_timeout_s)
        seen = found.observation
        if (doubt := found.doubt or job.doubt) is not None:
            self._doubts.note(
                job.record.name, str(job.record.job_id), doubt.why, doubt.tried, until=doubt.until
            )
        else:
            self._doubts.settle(job.record.name, str(job.record.job_id))

        if seen.state is ObservedState.RUNNING and job.address is not None:
            return replace(found, observation=replace(seen, address=job.address))

        return found

    def doubtful(self) -> tuple[DoubtfulJob, ...]:
        for job in self._jobs.values():
            self.interpret(job)
        return self._doubts.jobs()

    async def sync(self, only: TrackedJob | None = None) -> None:
        """List the jobs and act on changes. ``only``: an older list suffices if it includes this
        job, and then nothing is raised. Raises ``HeappeFailed`` if there is no list."""
        async with self._syncing:
            jobs = [only] if only is not None else list(self._jobs.values())
            watched = {job.record.job_id for job in jobs if not job.end_read}
            try:
                await self.listing.refresh(watched)
            except HeappeFailed:
                await self._check_tunnels(jobs)
                self._notify(jobs)
                if only is None:
                    raise

                return

            limit = asyncio.Semaphore(_AT_ONCE)

            async def update(job: TrackedJob) -> None:
                async with limit:
                    await self._update(job)

            await asyncio.gather(*(update(job) for job in jobs))
            await self._check_tunnels(jobs)
            self._notify(jobs)

        await self._doubts.save()

    async def end(self, job: TrackedJob) -> None:
        """Cancel a job, repeatedly if that has no effect. Raises ``HeappeFailed``."""
        await self._note_stop(job)
        await self._cancel(job)

    async def remove(self, job: TrackedJob) -> bool:
        """Stop a job, and remove everything except the log. Returns False if it has not ended yet.
        Raises ``HeappeFailed``."""
        await self._note_stop(job)
        async with self._syncing:
            await self.listing.look_at([job.record.job_id])

        seen = self.listing.get(job.record.job_id)
        if seen is None:
            return False
        if seen.job.state in ACTIVE and seen.job.state is not JobState.CONFIGURING:
            await self._cancel(job)
            return False
        if job.record.running_at:
            await self._logs.pull_quietly(job)

        found = self.interpret(job)
        if seen.job.state in ENDED:
            await self._end_program(job)
        if job.keeper is not None and seen.job.state is JobState.RUNNING:
            await job.keeper.close()

        if seen.job.state in DELETABLE:
            try:
                await self._client.delete_job(job.record.job_id)
            except HeappeFailed as error:
                if error.problem not in (SiteFault.INVALID, SiteFault.NOT_FOUND, SiteFault.STATE):
                    raise

        await asyncio.to_thread(self._erase, job)
        self.listing.remove(job.record.job_id)
        self._jobs.pop(job.record.kernel_id, None)
        if job.relay is not None:
            await job.relay.close()
        if job.address is not None:
            self._release(job.address[1])

        job.changed.set()
        doubt = found.doubt or job.doubt
        if doubt is None or not doubt.until:
            self._doubts.settle(job.record.name, str(job.record.job_id))

        await self._doubts.save()
        return True

    async def note_unended(self, job: TrackedJob) -> None:
        """Note that the site has not stopped a cancelled job in time."""
        job.doubt = job.doubt or Doubt(
            "it should have ended, but the site has not ended it", "cancelled repeatedly"
        )
        self.interpret(job)
        await self._doubts.save()

    async def sweep(self, records: Mapping[KernelId, HeappeRecord]) -> set[KernelId]:
        """Cancel duplicates and delete leftovers. Returns the kernels that have a job at the site
        but no record. Raises ``HeappeFailed``."""
        found = set[KernelId]()
        known = {record.job_id for record in records.values()}
        names = {record.name: record for record in records.values()}
        self._doubts.settle_unlisted({str(job.id) for job in self.listing.all()})

        for job in self.listing.all():
            if job.id in known:
                continue

            record = names.get(job.name)
            if record is not None and not record.job_id:
                continue  # it is being created

            if job.state is JobState.CONFIGURING:
                await self._discard(job, "it was never submitted")
            elif record is not None:
                await self._discard(job, f"it duplicates job {record.job_id}")
            elif kernel_id := kernel_of(job):
                why = f"the site shows it as {job.state.name}, but no kernel is known to run in it"
                tried = (
                    "it was reported as a kernel of this agent, and is cancelled unless it belongs "
                    "to a session"
                )
                self._doubts.note(job.name, str(job.id), why, tried, listed=True)
                found.add(kernel_id)

        await self._doubts.save()
        return found

    # Parts.

    async def _update(self, job: TrackedJob) -> None:
        """Apply the site's report about one job. Never raises; failures are retried."""
        seen = self.listing.get(job.record.job_id)
        if seen is None:
            return

        try:
            if seen.job.state not in ENDED:
                job.ended_at = None
                job.was_silent = False
            elif not job.end_read and not await self._read_end(job, seen):
                return

            job.seen = seen
            await self._note(job, seen)
            if seen.job.state is JobState.RUNNING and job.keeper is None and job.record.serves:
                await self._reach(job)
            if job.record.stopping and seen.job.state in ACTIVE:
                await self._cancel(job)
        except HeappeFailed as error:
            log.info("a job could not be updated", job=job.record.name, why=error.message)
        except OSError as error:
            log.error("cannot write the record of a job", job=job.record.name, error=str(error))

    async def _note(self, job: TrackedJob, seen: Seen) -> None:
        """Record facts that have become certain."""
        record = job.record
        state = seen.job.state

        if state is not JobState.CONFIGURING and not record.submitted:
            log.info(
                "a job whose submission was in doubt has appeared",
                job=record.name,
                state=state.name,
            )
            record = replace(record, submitted=True)
        if state is JobState.RUNNING and not record.running_at:
            record = replace(record, running_at=seen.at)
        if state in ENDED and not record.running_at and seen.job.task.nodes:
            record = replace(record, running_at=seen.at)  # the job ran between two lists
        if record != job.record:
            await self._save(job, record)

    async def _read_end(self, job: TrackedJob, seen: Seen) -> bool:
        """Read the exit code, which the job writes itself. Returns False if nothing has changed and
        it must be read again."""
        now = self._clock.monotonic()
        is_answered = True
        job.attempts += 1
        job.ended_at = now if job.ended_at is None else job.ended_at
        try:
            told = await progress_of(self._client, job)
        except HeappeFailed:
            if job.attempts < _END_ATTEMPTS:
                return False

            told = Told()
            is_answered = False

        if _may_run(job, seen, told=told, now=now, is_answered=is_answered):
            if (told.ours or told.port) and not job.record.running_at:
                log.warning("a job that its site shows as ended has started", job=job.record.name)
                job.begun_late = True
                await self._save(job, replace(job.record, running_at=seen.at))

            return True

        job.end_read = True
        # Our program writes the kernel's outcome, unless it was also killed.
        code = (
            _KILLED
            if told.ours and told.exit_code is None and job.record.stopping
            else told.exit_code
        )
        if code is not None or told.terminated or told.ours or told.port:
            known = replace(job.record, exit_code=code, terminated=told.terminated)
            known = replace(known, running_at=known.running_at or seen.at, ended_at=seen.at)
            await self._save(job, known)

        return True

    async def _reach(self, job: TrackedJob) -> None:
        """Open the tunnel to the engine once the job has reported where it listens."""
        target = await target_of(self._client, job, await progress_of(self._client, job))
        if target is None or (job.relay is None and not await self._open_relay(job)):
            return

        job.keeper = TunnelKeeper(
            self._client,
            job.record.task_id,
            target,
            self._clock,
            timeout_s=self._unreachable_timeout_s,
            renewals=self._renewals,
            on_change=lambda: self._notify([job]),
        )
        job.changed.set()  # the job is already running, and its state does not change

    async def _open_relay(self, job: TrackedJob) -> bool:
        """Open the relay. Returns False if no port is currently free."""
        relay = Relay(self._client, lambda: job.keeper)
        port = 0
        try:
            port = self._allocate()
            await relay.listen(self._host, port)
        except (NoFreePort, OSError) as error:
            log.warning("a job has no address yet", job=job.record.name, why=str(error))
            if port:
                self._release(port)

            return False

        job.relay = relay
        job.address = (self._host, port)
        return True

    async def _check_tunnels(self, jobs: list[TrackedJob]) -> None:
        # A job that the database shows as failed is queried as long as it answers.
        keepers = [
            (job, job.keeper)
            for job in jobs
            if job.keeper is not None
            and (not job.end_read or self.interpret(job).observation.state is ObservedState.UNKNOWN)
        ]
        limit = asyncio.Semaphore(_AT_ONCE)

        async def check(job: TrackedJob, keeper: TunnelKeeper) -> None:
            async with limit:
                await keeper.check(0 if job.end_read else self.probe_s)

        await asyncio.gather(*(check(job, keeper) for job, keeper in keepers))
        for job, keeper in keepers:
            if keeper.broken and not job.record.stopping:
                log.warning("replacing a job whose tunnel cannot be repaired", job=job.record.name)
                try:
                    await self.end(job)
                except HeappeFailed as error:
                    log.warning(
                        "the job was not cancelled yet", job=job.record.name, why=error.message
                    )

    async def _cancel(self, job: TrackedJob) -> None:
        """Cancel a job. A job that was not submitted or has already ended is left alone, because
        HEAppE 6.3 does not save its cancellation."""
        seen = self.listing.get(job.record.job_id)
        now = self._clock.monotonic()
        state = JobState.UNKNOWN if seen is None else seen.job.state
        if state in ENDED:
            await self._end_program(job)
            return
        if not cancel_due(job.cancelled, state, now):
            return

        await self._client.cancel_job(job.record.job_id)
        job.cancelled = state, now

    async def _end_program(self, job: TrackedJob) -> None:
        """Ask a job's own program to exit, because the site considers the job ended and no longer
        cancels it."""
        if (
            job.keeper is not None
            and job.record.exit_code is None
            and await job.keeper.end_program()
        ):
            log.info("a job that its site considers ended was asked to exit", job=job.record.name)

    async def _discard(self, job: HeappeJob, why: str) -> None:
        log.warning("removing a job", job=job.name, id=job.id, why=why)
        try:
            if job.state is JobState.CONFIGURING:
                await self._client.delete_job(job.id)
            else:
                await self._client.cancel_job(job.id)
        except HeappeFailed as error:
            tried = f"the site did not remove it: {error.message}"
            self._doubts.note(job.name, str(job.id), why, tried, listed=True)

    async def _note_stop(self, job: TrackedJob) -> None:
        """Note our intent to stop. It explains failures from now on, but not earlier ones."""
        if not job.record.stopping:
            doubt = self.interpret(job).doubt
            job.doubt = doubt if doubt is not None and doubt.until else None
            try:
                await self._save(job, replace(job.record, stopping=True))
            except OSError as error:  # for example a full disk; the job must end anyway
                log.warning(
                    "the stop of a job was not recorded", job=job.record.name, error=str(error)
                )

    async def _save(self, job: TrackedJob, record: HeappeRecord) -> None:
        job.record = record
        await asyncio.to_thread(self._write, job, record)

    def _write(self, job: TrackedJob, record: HeappeRecord) -> None:
        """Write the record. A list that was requested before a job was removed may be processed
        afterwards."""
        with job.writing:
            if not job.removed:
                self._records.save(record)

    def _erase(self, job: TrackedJob) -> None:
        with job.writing:
            job.removed = True
            self._records.remove(job.record.kernel_id)

    def observe(self, job: TrackedJob) -> RuntimeObservation:
        """The job's known state. ``job.changed`` is set when it changes."""
        found = self.interpret(job).observation
        job.last = shown(found)
        return found

    def _notify(self, jobs: list[TrackedJob]) -> None:
        for job in jobs:
            if shown(self.interpret(job).observation) != job.last:
                job.changed.set()


def _may_run(job: TrackedJob, seen: Seen, told: Told, now: float, *, is_answered: bool) -> bool:
    """Whether a job that the site shows as ended may still be waiting, or has started since.
    ``told``: the text that the job has written; ``is_answered``: whether it could be read."""
    record = job.record
    if (
        seen.job.state is JobState.FINISHED
        or record.stopping
        or told.exit_code is not None
        or told.terminated
    ):
        return False

    if job.begun_late:
        return True
    if record.running_at or seen.job.task.nodes:
        return False
    if told.ours or told.port:
        # A model would be useless, because the site does not open a tunnel to it.
        return job.was_silent and not record.serves

    job.was_silent = job.was_silent or is_answered
    assert job.ended_at is not None
    return now - job.ended_at < (SETTLE_S if is_answered else DOUBT_S)
