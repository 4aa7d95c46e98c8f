"""Decisions about the runs of a cron job: which start, and when the next one is due. Pure.

A run starts at most once, because ``cron_runs`` in Postgres is unique by cron job and scheduled
time. Whether a late run starts depends on its deadline and on ``missed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.common.model.cron_jobs import ON_TIME_S, CronJobSpec, CronRunState
from moorage.common.model.pipelines import StepState
from moorage.common.model.status import Result, Status
from moorage.manager.workloads import pipelines
from moorage.manager.workloads.cron_times import CronTimes

# How many missed runs are counted before the count ends with "or more".
MOST_COUNTED = 1000
# A clock that goes back less than this cannot have moved a next run far into the future.
CLOCK_BACK_S = 60.0


@dataclass(frozen=True, slots=True)
class Missed:
    """Runs that will not start. ``count``: MOST_COUNTED means that many or more."""

    first: datetime
    last: datetime
    count: int


@dataclass(frozen=True, slots=True)
class DueRuns:
    """``start``: the scheduled time of the run that starts now, if any. ``next_at``: when the next
    run is due; None means never again."""

    start: datetime | None
    missed: Missed | None
    next_at: datetime | None


def deadline_s(spec: CronJobSpec) -> float | None:
    """How late a run may start; None means any time."""
    if spec.start_deadline_s is not None or spec.missed == "run-once":
        return spec.start_deadline_s
    return ON_TIME_S


def is_late(spec: CronJobSpec, scheduled_at: datetime, now: datetime) -> bool:
    limit = deadline_s(spec)
    return limit is not None and now - scheduled_at > timedelta(seconds=limit)


def due_runs(spec: CronJobSpec, times: CronTimes, next_at: datetime, now: datetime) -> DueRuns:
    """Decide about all runs from ``next_at``, which is due, to ``now``. Only the latest of them can
    start; the earlier ones have been missed."""
    latest = times.last_between(next_at, now) or next_at
    following = times.next_after(now)
    if is_late(spec, latest, now):
        return DueRuns(None, _missed(times, next_at, latest, ends_with=latest), following)

    missed = None
    if latest > next_at:
        missed = _missed(times, next_at, latest)
    return DueRuns(latest, missed, following)


def _missed(
    times: CronTimes, first: datetime, latest: datetime, *, ends_with: datetime | None = None
) -> Missed:
    """Those from ``first`` until before ``latest``, or until ``ends_with``."""
    last = first
    count = 1
    for time in times.after(first):
        if time > latest or (time == latest and ends_with is None):
            break
        last = time
        count += 1
        if count == MOST_COUNTED:
            break

    return Missed(first, ends_with or last, count)


def run_state(
    stored: CronRunState,
    session: tuple[Status, Result, str] | None,
    steps: Mapping[StepState, int] | None,
) -> CronRunState:
    """The state of a run. ``session``: status, result and reason of its session, or None if it has
    been removed; ``steps``: the steps of its pipeline, by state, or None if it runs a session."""
    if stored is not CronRunState.PENDING:
        return stored
    if session is None:
        return CronRunState.REMOVED
    if steps is not None:
        return CronRunState(pipelines.pipeline_state(steps))
    return CronRunState(pipelines.step_state(*session))


def run_name(name: str, scheduled_at: datetime, *, manual: bool) -> str:
    """Name of the session or pipeline of a run, like Kubernetes: the cron job and the time."""
    return f"{name}-{scheduled_at:%Y%m%d%H%M%S}" if manual else f"{name}-{scheduled_at:%Y%m%d%H%M}"
