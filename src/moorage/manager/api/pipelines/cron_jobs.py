"""Handlers for cron jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from moorage.common.model.cron_jobs import CronJobSpec, CronRunState, CronTimesSpec, NewCronJob
from moorage.common.model.errors import Conflict, Forbidden, MoorageError
from moorage.common.model.spec import Model, NoNul
from moorage.common.views.cron_jobs import CronJobView, CronRunView, CronTimesView
from moorage.common.views.resources import Page
from moorage.manager.api.http import authorization
from moorage.manager.api.http.listing import PageQuery, SearchText, WholeQuery, order, paging
from moorage.manager.api.http.route import Call, NoQuery, route
from moorage.manager.api.identity.secrets import check_no_mask
from moorage.manager.api.pipelines.cron_submission import CronSubmitter
from moorage.manager.identity.scope import Scope
from moorage.manager.store.pipelines.cron_jobs import CronJob, NewCronRun
from moorage.manager.workloads import plain_secrets
from moorage.manager.workloads.cron_times import CronTimes

_CRON_JOB = "/v1/cron-jobs/{ref:.+}"
_CLAIMS = 5


class CronJobQuery(WholeQuery):
    project: NoNul | None = None
    user: NoNul | None = Field(None, description="Only cron jobs of this owner.")
    search: SearchText | None = None
    sort: Literal["name", "-name", "created_at", "-created_at"] = order("name")


class CronRunQuery(PageQuery):
    sort: Literal["scheduled_at", "-scheduled_at"] = order("-scheduled_at")


class TimesQuery(Model):
    count: Annotated[int, Field(ge=1, le=50)] = Field(5, description="How many times to return.")


@route(
    "POST",
    "/v1/cron-jobs",
    "Create a cron job: a session or a pipeline that starts at the times of a cron expression",
    body=NewCronJob,
    returns=CronJobView,
    status=201,
    location="/v1/cron-jobs/{id}",
    access="member",
)
async def create_cron_job(call: Call[NewCronJob, NoQuery]) -> CronJobView:
    spec = CronJobSpec.model_validate(call.body.model_dump(exclude_unset=True, exclude={"name"}))
    times, warnings = await _checked(call, call.scope, spec)
    jobs = call.deps.store.cron_jobs
    next_at = times.next_after(await jobs.now())
    made = await jobs.create(call.scope, call.body.name, spec, next_at)
    return await _answer(call, made, warnings=warnings)


@route(
    "POST",
    "/v1/cron-jobs/plan",
    "Show the next times of a cron expression, and create nothing",
    body=CronTimesSpec,
    query=TimesQuery,
    returns=CronTimesView,
    access="viewer",
)
async def plan_cron_job(call: Call[CronTimesSpec, TimesQuery]) -> CronTimesView:
    times = CronTimes.of(call.body)
    found = times.first_after(await call.deps.store.cron_jobs.now(), call.query.count)
    return CronTimesView(times=found, time_zone=call.body.time_zone)


@route(
    "GET",
    "/v1/cron-jobs",
    "List cron jobs, each with its newest run",
    query=CronJobQuery,
    returns=Page[CronJobView],
    access="viewer",
)
async def list_cron_jobs(call: Call[None, CronJobQuery]) -> Page[CronJobView]:
    query = call.query
    return await call.deps.store.cron_jobs.page(
        call.scope, paging(query), project=query.project, user=query.user, search=query.search
    )


@route("GET", _CRON_JOB, "Get a cron job", returns=CronJobView, access="viewer")
async def get_cron_job(call: Call[None, NoQuery]) -> CronJobView:
    return await _answer(call, await call.deps.store.cron_jobs.get(call.scope, call.path("ref")))


@route(
    "GET",
    f"{_CRON_JOB}/runs",
    "List the runs of a cron job, newest first",
    query=CronRunQuery,
    returns=Page[CronRunView],
    access="viewer",
)
async def list_cron_runs(call: Call[None, CronRunQuery]) -> Page[CronRunView]:
    jobs = call.deps.store.cron_jobs
    return await jobs.runs(await jobs.get(call.scope, call.path("ref")), paging(call.query))


@route(
    "PUT",
    _CRON_JOB,
    "Change a cron job: replace its specification. The caller becomes its owner",
    body=CronJobSpec,
    returns=CronJobView,
    versioned=True,
    access="owner",
)
async def put_cron_job(call: Call[CronJobSpec, NoQuery]) -> CronJobView:
    """Replace the specification. Whoever does becomes the owner, because runs have the rights of
    their owner, and nobody can decide what runs with the rights of somebody else."""
    jobs = call.deps.store.cron_jobs
    job = await _controlled(call)
    scope = replace(call.scope, owner=replace(call.scope.owner, project=job.project))

    times, warnings = await _checked(call, scope, call.body)
    made = await jobs.update(
        scope,
        job,
        call.body,
        next_at=times.next_after(await jobs.now()),
        if_match=call.if_match("a cron job"),
    )
    return await _answer(call, made, warnings=warnings)


@route(
    "DELETE",
    _CRON_JOB,
    "Delete a cron job with the records of its runs. Its sessions and pipelines stay",
    returns=CronJobView,
    access="owner",
)
async def delete_cron_job(call: Call[None, NoQuery]) -> CronJobView:
    job = await _controlled(call)
    view = await call.deps.store.cron_jobs.view(job)
    await call.deps.store.cron_jobs.delete(call.scope, job)
    return view


@route(
    "POST",
    f"{_CRON_JOB}/suspend",
    "Suspend a cron job: no run is due until it is resumed. A run that has started continues",
    returns=CronJobView,
    access="owner",
)
async def suspend_cron_job(call: Call[None, NoQuery]) -> CronJobView:
    job = await _controlled(call)
    return await _answer(
        call,
        await call.deps.store.cron_jobs.suspend(call.scope, job, suspended=True, next_at=None),
    )


@route(
    "POST",
    f"{_CRON_JOB}/resume",
    "Resume a suspended cron job. Runs that it left out do not start",
    returns=CronJobView,
    access="owner",
)
async def resume_cron_job(call: Call[None, NoQuery]) -> CronJobView:
    jobs = call.deps.store.cron_jobs
    job = await _controlled(call)
    next_at = CronTimes.of(job.spec).next_after(await jobs.now())
    return await _answer(
        call, await jobs.suspend(call.scope, job, suspended=False, next_at=next_at)
    )


@route(
    "POST",
    f"{_CRON_JOB}/run",
    "Start a run of a cron job now, also while it is suspended",
    returns=CronRunView,
    status=201,
    access="owner",
)
async def start_cron_job(call: Call[None, NoQuery]) -> CronRunView:
    jobs = call.deps.store.cron_jobs
    for _ in range(_CLAIMS):
        job = await _controlled(call)
        active = await jobs.active(job)
        if active and job.spec.concurrency != "allow":
            raise Conflict(
                f"the previous run of cron job {job.name!r} has not ended",
                next_step="wait for its end or stop it, or set `concurrency` to allow",
            )

        run = NewCronRun(call.deps.clock.new_id(), await jobs.now())
        if await jobs.claim_by_hand(call.scope, job, run):
            return await _start(call, job, run)

    raise Conflict(f"cron job {job.name!r} keeps changing", next_step="try again")


async def _start(call: Call[None, NoQuery], job: CronJob, run: NewCronRun) -> CronRunView:
    jobs = call.deps.store.cron_jobs
    try:
        await CronSubmitter(call.deps).start(job, run, by_hand=True)
    except MoorageError as error:
        if error.http < 500:
            await jobs.end_run(run.id, CronRunState.REFUSED, error.message)
        raise

    await jobs.trim(job)
    runs = await jobs.runs(job)
    return next(view for view in runs.items if view.id == run.id)


async def _controlled(call: Call[Any, Any]) -> CronJob:
    """The cron job of the path, if the caller may change it."""
    _check_key(call)
    job = await call.deps.store.cron_jobs.get(call.scope, call.path("ref"))
    authorization.check_control(call, f"cron job {job.name!r}", job.owner, job.project)
    return job


def _check_key(call: Call[Any, Any]) -> None:
    key = call.scope.key
    if key is not None and key.restricted:
        raise Forbidden(
            f"the key {key.name!r} is restricted, and runs of cron jobs have all rights of their "
            "owner",
            next_step="use a key without limits on scopes, models, resource groups or priority",
        )


async def _checked(
    call: Call[Any, Any], scope: Scope, spec: CronJobSpec
) -> tuple[CronTimes, list[str]]:
    """The times of a specification whose session or pipeline the caller may submit, and warnings
    about it."""
    _check_key(call)
    times = CronTimes.of(spec)
    check_no_mask(_variables(spec))
    warnings = await CronSubmitter(call.deps).check(scope, spec)
    warnings += plain_secrets.warnings(env for env in _variables(spec) if env is not None)
    return times, warnings


def _variables(spec: CronJobSpec) -> list[Any]:
    found: list[Any] = [] if spec.session is None else list(plain_secrets.of_workload(spec.session))
    found.append(spec.overrides.get("env"))
    if spec.pipeline is not None:
        for step in spec.pipeline.steps:
            found += [] if step.spec is None else plain_secrets.of_workload(step.spec)
            found.append(step.overrides.get("env"))
    return found


async def _answer(
    call: Call[Any, Any], job: CronJob, *, warnings: list[str] | None = None
) -> CronJobView:
    view = await call.deps.store.cron_jobs.view(job)
    return call.tagged(view.model_copy(update={"warnings": warnings}) if warnings else view)
