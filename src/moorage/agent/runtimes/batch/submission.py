"""Resolution of submissions: which of the jobs with a kernel's name is its job, and which are
duplicates. Pure.

A submission whose answer was lost is never repeated, because the job may exist. The agent waits
until the job appears, or until the site's answers have not included it for long enough. A site may
also duplicate a job on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# An accepted job appears within seconds, or within a minute at sites whose view lags.
DOUBT_S = 180.0


@dataclass(frozen=True, slots=True)
class JobCandidate:
    """A job with the kernel's name. ``active``: whether it is waiting or running. ``running``:
    whether it is running."""

    job_id: str
    active: bool
    running: bool


@dataclass(frozen=True, slots=True)
class SubmissionVerdict:
    """The verdict. ``job_id``: the job to follow; empty if none is known. ``doubles``: duplicates
    to cancel. ``never``: the site did not accept the job."""

    job_id: str = ""
    doubles: tuple[str, ...] = ()
    never: bool = False


def resolve(
    known: str,
    found: Sequence[JobCandidate],
    *,
    doubt_s: float | None = None,
    limit_s: float = DOUBT_S,
) -> SubmissionVerdict:
    """Resolve a submission. ``known``: the id that the site returned at submission, or "".
    ``found``: all jobs that the site currently lists. ``doubt_s``: how long the site has been
    answering since a submission that got no answer; None if no submission is in doubt.

    The known job is followed. If no job is known, the running job is followed, otherwise a waiting
    one, otherwise an ended one, oldest first. All other active jobs are duplicates.
    """
    ranked = sorted(found, key=lambda job: (not job.running, not job.active, _age(job.job_id)))
    job_id = known or (ranked[0].job_id if ranked else "")
    doubles = tuple(job.job_id for job in ranked if job.active and job.job_id != job_id)

    return SubmissionVerdict(
        job_id, doubles, never=not job_id and doubt_s is not None and doubt_s >= limit_s
    )


def _age(job_id: str) -> tuple[int, str]:
    digits = job_id.partition("_")[0]
    return (int(digits) if digits.isdigit() else 0, job_id)
