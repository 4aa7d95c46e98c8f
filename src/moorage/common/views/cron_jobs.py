"""REST models for cron jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, PlainSerializer

from moorage.common.model.cron_jobs import CronJobSpec, CronRunState
from moorage.common.views.resources import View, masked


def _masked_job(spec: CronJobSpec) -> dict[str, Any]:
    shown = spec.model_dump(mode="json", exclude_unset=True)
    if isinstance(session := shown.get("session"), dict):
        shown["session"] = masked(session)
    if "overrides" in shown:
        shown["overrides"] = masked(shown["overrides"])

    pipeline = shown.get("pipeline")
    for step in pipeline["steps"] if isinstance(pipeline, dict) else ():
        for name in ("spec", "overrides"):
            if isinstance(step.get(name), dict):
                step[name] = masked(step[name])

    return shown


class CronRunView(View):
    """Run of a cron job: a session or a pipeline, or the reason why there is none."""

    id: str
    cron_job: str = Field(description="Name of its cron job.")
    cron_job_id: str
    scheduled_at: datetime = Field(description="When the run was due.")
    state: CronRunState
    by_hand: bool = Field(default=False, description="Somebody started it with `run`.")
    reason: str = Field(default="", description="Why it was refused or skipped.")
    missed: int = Field(
        default=0,
        description="missed: number of runs from scheduled_at to missed_to, at most 1000.",
    )
    missed_to: datetime | None = Field(default=None, description="missed: the last of the runs.")
    session_id: str | None = Field(
        default=None, description="Its session, or the first session of its pipeline."
    )
    session: str | None = Field(default=None, description="Name of that session.")
    pipeline_id: str | None = None
    pipeline: str | None = Field(default=None, description="Name of the pipeline.")
    ended_at: datetime | None = None
    created_by: str = ""


class CronTimesView(View):
    """The next times of a cron expression, in UTC."""

    times: list[datetime]
    time_zone: str


class CronJobView(View):
    """Cron job: a session or a pipeline that starts at the times of a cron expression."""

    id: str
    name: str
    project: str
    user: str
    spec: Annotated[CronJobSpec, PlainSerializer(_masked_job)]
    suspended: bool = False
    next_at: datetime | None = Field(
        default=None, description="When the next run is due. null: suspended, or never again."
    )
    last_run: CronRunView | None = Field(default=None, description="The newest run.")
    refusals: int = Field(
        default=0, description="How many runs were refused since the last run that started."
    )
    created_at: datetime
    created_by: str
    version: int = Field(description="Changes with the specification; the ETag of the cron job.")
    warnings: list[str] = Field(default=[], description="Set only in the response to its creation.")
