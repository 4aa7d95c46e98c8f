"""Cron jobs in Postgres, and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text

from moorage.common.aio.clock import Clock
from moorage.common.model.cron_jobs import CronJobSpec, CronRunState
from moorage.common.model.errors import Conflict, NotFound
from moorage.common.model.ids import SessionId
from moorage.common.model.paging import FIRST, Paging
from moorage.common.model.pipelines import StepState
from moorage.common.model.roles import Role
from moorage.common.model.status import Result, Status
from moorage.common.views.cron_jobs import CronJobView, CronRunView
from moorage.common.views.resources import Page
from moorage.manager.identity.scope import Scope
from moorage.manager.store.database.connections import Database, Purpose
from moorage.manager.store.database.cursors import Listing
from moorage.manager.store.database.queries import SQL
from moorage.manager.store.database.rows import Row, as_uuid
from moorage.manager.store.database.unreadable import UnreadableRows, read_one, read_page
from moorage.manager.store.database.versions import Versions, check_version, sent
from moorage.manager.store.pipelines.repository import PipelineStore
from moorage.manager.store.schema.base import ID, TIME
from moorage.manager.workloads import pipelines
from moorage.manager.workloads.cron_runs import Missed, run_state

# Idempotency keys of this scope are ids of runs: the trigger of the table marks the run as started.
CRON = "cron"
_LISTING = Listing(
    SQL["cron_job_list"],
    {"name": Text(), "project": Text(), "owner": Text(), "created_at": TIME, "id": ID},
    sorts=("name", "created_at"),
    key=("name", "id"),
    default="name",
)
_RUNS = Listing(
    SQL["cron_run_list"],
    {"scheduled_at": TIME, "id": ID},
    sorts=("scheduled_at",),
    key=("scheduled_at", "id"),
    default="-scheduled_at",
)


@dataclass(frozen=True, slots=True)
class CronJob:
    """Stored cron job. ``granted``: the role with which it was created. ``runs``: changes with
    every decision about its runs. ``trimmed_to``: no run until then is known any more."""

    id: str
    name: str
    project: str
    owner: str
    granted: Role
    spec: CronJobSpec
    suspended: bool
    next_at: datetime | None
    runs: int
    refusals: int
    trimmed_to: datetime | None
    created_at: datetime
    created_by: str
    version: int


@dataclass(frozen=True, slots=True)
class NewCronRun:
    """A run to be recorded: one that starts, or one that was skipped for a reason."""

    id: str
    scheduled_at: datetime
    state: CronRunState = CronRunState.STARTING
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run that has not ended. It has no session before it has started."""

    id: str
    session_id: SessionId | None
    pipeline_id: str | None


class CronJobStore:
    def __init__(
        self, db: Database, clock: Clock, pipeline_store: PipelineStore, unreadable: UnreadableRows
    ) -> None:
        self._db = db
        self._clock = clock
        self._pipelines = pipeline_store
        self._unreadable = unreadable
        self._connection = db.shared_connection(Purpose.ADMINISTRATION)

    # -- cron jobs --

    async def create(
        self, scope: Scope, name: str, spec: CronJobSpec, next_at: datetime | None
    ) -> CronJob:
        """Create a cron job of the scope's owner. Raises ``Conflict`` for a name that is taken."""
        rows = await self._connection.fetch(
            SQL["cron_job_create"],
            self._clock.new_id(),
            name,
            scope.owner.project,
            scope.owner.user,
            scope.role,
            _text(spec),
            next_at,
            scope.actor,
        )
        if not rows:
            raise Conflict(
                f"project {scope.owner.project!r} already has a cron job {name!r}",
                next_step=f"choose another name, or change it: `moorage cron update {name}`",
            )
        return await self.get(scope, rows[0]["id"])

    async def update(
        self,
        scope: Scope,
        job: CronJob,
        spec: CronJobSpec,
        *,
        next_at: datetime | None,
        if_match: Versions = None,
    ) -> CronJob:
        """Replace the specification; the scope's user becomes the owner. Raises
        ``PreconditionFailed`` for another version than one of ``if_match``, and ``NotFound`` if it
        was deleted."""
        rows = await self._connection.fetch(
            SQL["cron_job_update"],
            job.id,
            _text(spec),
            next_at,
            scope.owner.user,
            scope.role,
            sent(if_match),
        )
        if not rows:
            now = await self.get(scope, job.id)
            check_version(f"cron job {job.name!r}", now.version, if_match)
            raise Conflict(f"cron job {job.name!r} has changed", next_step="read it again")
        return await self.get(scope, job.id)

    async def suspend(
        self, scope: Scope, job: CronJob, *, suspended: bool, next_at: datetime | None
    ) -> CronJob:
        """Suspend or resume a cron job; one that is in that state stays as it is."""
        await self._connection.fetch(SQL["cron_job_suspend"], job.id, suspended, next_at)
        return await self.get(scope, job.id)

    async def delete(self, scope: Scope, job: CronJob) -> None:
        """Delete a cron job with the records of its runs. Their sessions stay. Raises
        ``NotFound``."""
        if not await self._connection.fetch(SQL["cron_job_delete"], job.id):
            raise _not_found(job.name)

    async def get(self, scope: Scope, ref: str) -> CronJob:
        """Get a cron job by id or name, that of the owner's project first. Raises ``NotFound``."""
        rows = await self._db.fetch(
            SQL["cron_job_list"], scope.projects, as_uuid(ref), ref, scope.owner.project
        )
        if not rows:
            raise _not_found(ref)
        return read_one("cron job", ref, rows[0], _job)

    async def view(self, job: CronJob) -> CronJobView:
        return (await self._views([job]))[0]

    async def page(
        self,
        scope: Scope,
        paging: Paging = FIRST,
        *,
        project: str | None = None,
        user: str | None = None,
        search: str | None = None,
    ) -> Page[CronJobView]:
        """Page of cron jobs, each with its newest run."""
        rows, following = await _LISTING.page(
            self._db,
            paging,
            scope.projects,
            None,
            None,
            scope.owner.project,
            only={"project": project, "owner": user},
            containing={"name": search},
        )

        found = read_page(CronJob, "cron job", rows=rows, read=_job, following=following)
        views = await self._views(found.items)
        return Page[CronJobView](items=views, next=following, unreadable=found.unreadable)

    async def _views(self, jobs: Sequence[CronJob]) -> list[CronJobView]:
        rows = await self._db.fetch(SQL["cron_run_newest"], [job.id for job in jobs])
        newest = dict(
            zip([row["cron_job"] for row in rows], await self._run_views(rows), strict=True)
        )
        return [_view(job, newest.get(job.id)) for job in jobs]

    # -- runs --

    async def runs(self, job: CronJob, paging: Paging = FIRST) -> Page[CronRunView]:
        """Page of the runs of a cron job, newest first by default."""
        rows, following = await _RUNS.page(self._db, paging, job.id, None, None, None)
        return Page[CronRunView](items=await self._run_views(rows), next=following)

    async def runs_between(
        self, scope: Scope, start: datetime, end: datetime, paging: Paging
    ) -> Page[CronRunView]:
        """Page of the runs of all cron jobs that the scope can read and that were due in a
        period."""
        rows, following = await _RUNS.page(self._db, paging, None, start, end, scope.projects)
        return Page[CronRunView](items=await self._run_views(rows), next=following)

    async def _run_views(self, rows: Sequence[Row]) -> list[CronRunView]:
        ids = sorted({row["pipeline_id"] for row in rows if row["pipeline_id"]})
        counts = await self._pipelines.counts(ids) if ids else {}
        steps: dict[str, dict[StepState, int]] = {}
        for pipeline_id, found in counts.items():
            states = steps.setdefault(pipeline_id, {})
            for status, result, reason, n, _step in found:
                state = pipelines.step_state(status, result, reason)
                states[state] = states.get(state, 0) + n

        return [_run(row, steps.get(row["pipeline_id"])) for row in rows]

    # -- decisions of the leader --

    async def now(self) -> datetime:
        """The database's time."""
        found: datetime = (await self._db.fetch(SQL["cron_job_now"]))[0]["now"]
        return found

    async def due(self, limit: int) -> tuple[list[CronJob], datetime | None]:
        """Cron jobs with a run that is due, and the database's time."""
        return self._jobs(await self._db.fetch(SQL["cron_due"], limit))

    async def ahead(self, seconds: float) -> tuple[list[CronJob], datetime | None]:
        """Cron jobs that were planned in the future, because the database's clock was set back."""
        return self._jobs(await self._db.fetch(SQL["cron_ahead"], seconds))

    def _jobs(self, rows: Sequence[Row]) -> tuple[list[CronJob], datetime | None]:
        jobs = self._unreadable.each("cron job", rows, _job)
        return jobs, rows[0]["now"] if rows else None

    async def replan(self, job: CronJob, next_at: datetime | None) -> None:
        await self._db.fetch(SQL["cron_replan"], job.id, job.runs, next_at)

    async def active(self, job: CronJob) -> list[ActiveRun]:
        rows = await self._db.fetch(SQL["cron_active"], job.id)
        return [ActiveRun(row["id"], row["session_id"], row["pipeline_id"]) for row in rows]

    async def starting(self, since_s: float) -> list[tuple[CronJob, NewCronRun, bool, datetime]]:
        """Runs that were claimed this long ago and have neither started nor been refused, whether
        they were started by hand, and the database's time."""
        rows = await self._db.fetch(SQL["cron_starting"], since_s)
        return self._unreadable.each(
            "cron job",
            rows,
            lambda row: (
                _job(row),
                NewCronRun(row["run_id"], row["scheduled_at"]),
                row["by_hand"],
                row["now"],
            ),
        )

    async def claim(
        self,
        job: CronJob,
        run: NewCronRun | None,
        *,
        missed: Missed | None = None,
        next_at: datetime | None = None,
        term: int,
    ) -> bool:
        """Record a decision about the due runs, and when the next one is due. Returns whether
        ``run`` is recorded: it is not if the cron job was changed since it was read, or under
        another leader's term."""
        return await self._claim(job, run, missed, due=job.next_at, next_at=next_at, term=term)

    async def claim_by_hand(self, scope: Scope, job: CronJob, run: NewCronRun) -> bool:
        """Record a run that somebody starts now. Returns False if the cron job was changed since it
        was read."""
        return await self._claim(job, run, None, due=None, actor=scope.actor)

    async def _claim(
        self,
        job: CronJob,
        run: NewCronRun | None,
        missed: Missed | None,
        *,
        due: datetime | None,
        next_at: datetime | None = None,
        term: int | None = None,
        actor: str = "manager",
    ) -> bool:
        rows = await self._connection.fetch(
            SQL["cron_claim"],
            job.id,
            job.runs,
            due,
            term,
            next_at,
            run and run.id,
            run and run.scheduled_at,
            run and run.state,
            run.reason if run else "",
            missed and self._clock.new_id(),
            missed and missed.first,
            missed and missed.last,
            missed and missed.count,
            actor,
        )
        return bool(rows) and bool(rows[0]["added"])

    async def end_run(self, run_id: str, state: CronRunState, reason: str) -> int:
        """End a run that does not start. Returns how many runs were refused in a row; 0 if this one
        was not refused, or had started."""
        rows = await self._connection.fetch(SQL["cron_run_end"], run_id, state, reason[:2000])
        return rows[0]["refusals"] if rows else 0

    async def trim(self, job: CronJob) -> None:
        """Delete the records of runs beyond the history of the cron job."""
        await self._connection.fetch(SQL["cron_trim"], job.id, job.spec.history)


def _text(spec: CronJobSpec) -> str:
    return spec.model_dump_json(exclude_unset=True, exclude={"name"})


def _job(row: Row) -> CronJob:
    return CronJob(
        id=row["id"],
        name=row["name"],
        project=row["project"],
        owner=row["owner"],
        granted=Role(row["granted_role"]),
        spec=CronJobSpec.model_validate_json(row["spec"]),
        suspended=row["suspended"],
        next_at=row["next_at"],
        runs=row["runs"],
        refusals=row["refusals"],
        trimmed_to=row["trimmed_to"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        version=row["version"],
    )


def _view(job: CronJob, newest: CronRunView | None) -> CronJobView:
    return CronJobView(
        id=job.id,
        name=job.name,
        project=job.project,
        user=job.owner,
        spec=job.spec,
        suspended=job.suspended,
        next_at=job.next_at,
        last_run=newest,
        refusals=job.refusals,
        created_at=job.created_at,
        created_by=job.created_by,
        version=job.version,
    )


def _run(row: Row, steps: dict[StepState, int] | None) -> CronRunView:
    session = None
    if row["status"] is not None:
        session = Status(row["status"]), Result(row["result"]), row["session_reason"]
    state = run_state(CronRunState(row["state"]), session, steps)

    return CronRunView(
        id=row["id"],
        cron_job=row["cron_job_name"],
        cron_job_id=row["cron_job"],
        scheduled_at=row["scheduled_at"],
        state=state,
        by_hand=row["by_hand"],
        reason=row["reason"],
        missed=row["missed"],
        missed_to=row["missed_to"],
        session_id=row["session_id"],
        session=row["session"],
        pipeline_id=row["pipeline_id"],
        pipeline=row["pipeline"],
        ended_at=row["ended_at"] if row["pipeline_id"] is None else None,
        created_by=row["created_by"],
    )


def _not_found(ref: str) -> NotFound:
    return NotFound(f"there is no cron job {ref!r}", next_step="`moorage cron list` lists them")
