"""Cron controller: starts the runs of cron jobs that are due.

Each look reads the cron jobs that are due from an index, decides with ``workloads.cron_runs``,
records the decision, and only then submits the run. The record makes a run unique; a run that was
recorded but not submitted, because its manager stopped, is submitted by the next leader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog

from moorage.common.aio.clock import Clock
from moorage.common.aio.loop import Loop
from moorage.common.model.cron_jobs import CronRunState
from moorage.common.model.errors import InvalidInput, MoorageError, StoreUnavailable
from moorage.manager.identity.scope import Scope
from moorage.manager.loops.leader import Leader
from moorage.manager.store import Store
from moorage.manager.store.pipelines.cron_jobs import ActiveRun, CronJob, NewCronRun
from moorage.manager.termination import SessionTerminator
from moorage.manager.workloads.cron_runs import CLOCK_BACK_S, due_runs, is_late
from moorage.manager.workloads.cron_times import CronTimes

log = structlog.get_logger("moorage.cron")

INTERVAL_S = 1.0
# How many cron jobs one look handles; a full look is followed by another.
TOGETHER = 50
# A run that was recorded this long ago has lost its manager: submitting takes less.
LOST_S = 15.0
# Lost runs and a clock that was set back are rare, so they are looked for less often.
REPAIR_S = 5.0

Start = Callable[..., Awaitable[None]]


class CronController:
    """``start`` submits a run with the rights of its owner. It raises the errors of a submission,
    and ``Conflict`` if the run has started."""

    def __init__(
        self,
        store: Store,
        leader: Leader,
        terminator: SessionTerminator,
        clock: Clock,
        *,
        start: Start,
    ) -> None:
        self._store = store
        self._leader = leader
        self._terminator = terminator
        self._clock = clock
        self._start = start
        self._term: int | None = None
        self._repaired_at = 0.0
        self.loop = Loop("cron", self.run_once, interval_s=INTERVAL_S, clock=clock)

    async def run_once(self) -> None:
        term = self._leader.term
        if term is None:
            self._term = None
            return

        now = self._clock.monotonic()
        jobs, at = await self._store.cron_jobs.due(TOGETHER)
        for job in jobs:
            if at is None or self._leader.term != term:
                return
            await self.handle(job, at, term)

        if len(jobs) == TOGETHER:
            self.loop.nudge()
        if term != self._term or now - self._repaired_at >= REPAIR_S:
            self._term = term
            self._repaired_at = now
            await self._repair(term)

    async def handle(self, job: CronJob, now: datetime, term: int) -> None:
        """Start, skip or miss the due runs of a cron job."""
        assert job.next_at is not None
        store = self._store.cron_jobs
        try:
            times = CronTimes.of(job.spec)
        except InvalidInput as error:  # the time zone is gone, since this host has other ones
            refused = NewCronRun(
                self._clock.new_id(), job.next_at, CronRunState.REFUSED, error.message
            )
            await store.claim(job, refused, term=term)
            return

        due = due_runs(job.spec, times, job.next_at, now)
        run = None if due.start is None else NewCronRun(self._clock.new_id(), due.start)
        active = await store.active(job) if run and job.spec.concurrency != "allow" else []
        if run and active and job.spec.concurrency == "forbid":
            run = NewCronRun(
                run.id,
                run.scheduled_at,
                CronRunState.SKIPPED,
                "the previous run had not ended",
            )

        added = await store.claim(job, run, missed=due.missed, next_at=due.next_at, term=term)
        if run and added and run.state is CronRunState.STARTING:
            for before in active:
                await self._stop(before, job)
            await self._submit(job, run)

        await store.trim(job)

    async def _submit(self, job: CronJob, run: NewCronRun, *, by_hand: bool = False) -> None:
        try:
            await self._start(job, run, by_hand=by_hand)
        except StoreUnavailable:  # the next look finds the run, unless it has started
            raise
        except MoorageError as error:
            # Without effect if the run has started, on another manager or in an earlier attempt.
            refusals = await self._store.cron_jobs.end_run(
                run.id, CronRunState.REFUSED, error.message
            )
            if refusals:
                log.warning(
                    "a run of a cron job was refused",
                    cron_job=job.name,
                    project=job.project,
                    why=error.message,
                    in_a_row=refusals,
                )

    async def _stop(self, run: ActiveRun, job: CronJob) -> None:
        """Stop a run that a new one replaces."""
        scope = Scope.system("cron")
        if run.pipeline_id is not None:
            await self._terminator.stop_pipeline(scope, run.pipeline_id, self._clock)
        elif run.session_id is not None:
            detail = f"cron job {job.name} replaced the run"
            await self._terminator.stop(scope, run.session_id, detail=detail)
        else:
            await self._store.cron_jobs.end_run(
                run.id, CronRunState.SKIPPED, "the next run replaced it before it started"
            )

    async def _repair(self, term: int) -> None:
        """Submit runs that lost their manager, and plan again after the clock was set back."""
        store = self._store.cron_jobs
        for job, run, by_hand, now in await store.starting(LOST_S):
            if self._leader.term != term:
                return
            if is_late(job.spec, run.scheduled_at, now):
                await store.end_run(
                    run.id, CronRunState.SKIPPED, "its manager stopped, and its deadline has passed"
                )
            else:
                await self._submit(job, run, by_hand=by_hand)

        jobs, at = await store.ahead(CLOCK_BACK_S)
        for job in jobs:
            if at is not None:
                known = at if job.trimmed_to is None else max(at, job.trimmed_to)
                await store.replan(job, CronTimes.of(job.spec).next_after(known))
