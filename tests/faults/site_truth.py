"""A site's truth: what its cluster ran, compared with what the sessions report. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from moorage.agent.runtimes.batch import JobName, kernel_part
from moorage.common.model.ids import KernelId
from moorage.common.model.status import TERMINAL
from moorage.common.views.resources import SessionView

from .account import Charge

# The database and the cluster share a clock; both truncate their times.
_TOLERANCE = timedelta(seconds=1)
_CHARGED_S = 2.0


@dataclass(frozen=True)
class SiteJob:
    """``started`` and ``ended``: None until it has. ``disowned``: since when HEAppE has not known
    that it waits or runs, so that no client can know; None if it always has."""

    name: str
    submitted: datetime
    started: datetime | None = None
    ended: datetime | None = None
    disowned: datetime | None = None

    @property
    def known_until(self) -> datetime | None:
        """None if it is known to wait or run."""
        return min((at for at in (self.ended, self.disowned) if at is not None), default=None)

    @property
    def kernel(self) -> str:
        """The part of the kernel's id in the name, or "" if the job is not ours."""
        name = JobName.parse(self.name)
        return name.kernel if name else ""


def strangers(jobs: Iterable[SiteJob], sessions: Iterable[SessionView]) -> list[str]:
    """Jobs that belong to no kernel, and jobs of a kernel that has another job at the same time or
    has already run."""
    kernels = {
        kernel_part(KernelId(kernel.id)) for session in sessions for kernel in session.kernels
    }
    by_kernel: defaultdict[str, list[SiteJob]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.submitted):
        by_kernel[job.kernel].append(job)

    found = [f"{job.name} is of no kernel" for job in jobs if job.kernel not in kernels]
    for of_kernel in by_kernel.values():
        for one, two in pairwise(of_kernel):
            if one.ended is None or one.ended > two.submitted:
                found.append(f"{one.name} has two jobs at {two.submitted:%H:%M:%S}")
            elif one.started is not None:
                found.append(
                    f"{one.name} has run, and is submitted again at {two.submitted:%H:%M:%S}"
                )

    return found


def most_alive(jobs: Sequence[SiteJob]) -> int:
    """The highest number of jobs that were known to wait or run at one time."""
    changes = [(job.submitted, 1) for job in jobs]
    changes += [(until, -1) for job in jobs if (until := job.known_until) is not None]
    alive = 0
    most = 0
    for _, change in sorted(changes):
        alive += change
        most = max(most, alive)
    return most


def outlived(jobs: Sequence[SiteJob], sessions: Iterable[SessionView]) -> list[str]:
    """Sessions that had ended while one of their jobs was known to wait or run."""
    by_kernel = {job.kernel: job for job in jobs}
    found = []
    for session in sessions:
        for kernel in session.kernels:
            job = by_kernel.get(kernel_part(KernelId(kernel.id)))
            if job is None or session.status not in TERMINAL:
                continue

            ended_at = session.status_since
            known_until = job.known_until
            if known_until is None or known_until > ended_at + _TOLERANCE:
                until = "for ever" if known_until is None else f"until {known_until:%H:%M:%S}"
                found.append(
                    f"{session.name} ended {session.reason} at {ended_at:%H:%M:%S}, its job {until}"
                )

    return found


def charged_wrongly_at_site(
    charges: Iterable[Charge], jobs: Iterable[SiteJob], walltime_s: float
) -> list[str]:
    """A job is charged from its start at the site until it has ended, at most for its walltime."""
    by_kernel = {job.kernel: job for job in jobs}
    found = []
    for charge in charges:
        job = by_kernel.get(kernel_part(KernelId(charge.id)))
        if job is None or job.started is None:
            found.append(f"{charge.id} is charged, and never ran at the site")
            continue

        started = job.started.timestamp()
        over = job.started.timestamp() + walltime_s
        ended = over if job.known_until is None else job.known_until.timestamp()
        if abs(charge.began - started) > _CHARGED_S:
            found.append(
                f"{charge.id} is charged from {charge.began}, and started at {started:.0f}"
            )
        elif not ended - _CHARGED_S <= charge.ended <= over + _CHARGED_S:
            until = f"ran until {ended:.0f}, with a walltime until {over:.0f}"
            found.append(
                f"{charge.id} is charged until {charge.ended} ({charge.reason}), and {until}"
            )

    return found


def jobs_allowed(replicas: int, seconds: float, walltime_s: float, losses: int) -> int:
    """The maximum number of jobs for a model with this many replicas: half of each walltime may be
    given up for successors that are ready in time. ``losses``: jobs that faults may have cost."""
    lives = math.ceil(seconds / (walltime_s / 2))
    return replicas * (lives + 1) + losses


def calls_allowed(seconds: float, streams: int, jobs: int) -> int:
    """The maximum number of calls to HEAppE: a list each second, the calls for each job with its
    log and its checks, and streams with their retries, plus half as much again."""
    return math.ceil(1.5 * seconds + 20 * jobs + 3 * streams)
