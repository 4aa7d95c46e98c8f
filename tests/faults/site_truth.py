"""Truth of a site: what its cluster ran, against what sessions say of it. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from moorage.agent.runtimes.batch import kernel_part
from moorage.common.model.ids import KernelId
from moorage.common.model.status import TERMINAL
from moorage.common.views.resources import SessionView

# Clocks of the database and of the cluster are the same; both cut their times off.
_TOLERANCE = timedelta(seconds=1)


@dataclass(frozen=True)
class SiteJob:
    """``started`` and ``ended``: None while it has not. Names end with a part of the kernel's id."""

    name: str
    submitted: datetime
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def kernel(self) -> str:
        return self.name.rpartition("-")[2]


def strangers(jobs: Iterable[SiteJob], sessions: Iterable[SessionView]) -> list[str]:
    """Jobs of no kernel, and jobs of a kernel that has another one at the same time, or ran before."""
    kernels = {kernel_part(KernelId(kernel.id)) for session in sessions for kernel in session.kernels}
    by_kernel: defaultdict[str, list[SiteJob]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: job.submitted):
        by_kernel[job.kernel].append(job)
    found = [f"{job.name} is of no kernel" for job in jobs if job.kernel not in kernels]
    for of_kernel in by_kernel.values():
        for one, two in pairwise(of_kernel):
            if one.ended is None or one.ended > two.submitted:
                found.append(f"{one.name} has two jobs at {two.submitted:%H:%M:%S}")
            elif one.started is not None:
                found.append(f"{one.name} has run, and is submitted again at {two.submitted:%H:%M:%S}")
    return found


def most_alive(jobs: Iterable[SiteJob]) -> int:
    """How many jobs waited or ran at one time."""
    changes = [(job.submitted, 1) for job in jobs] + [(job.ended, -1) for job in jobs if job.ended]
    alive, most = 0, 0
    for _, change in sorted(changes):
        alive += change
        most = max(most, alive)
    return most


def outlived(jobs: Sequence[SiteJob], sessions: Iterable[SessionView]) -> list[str]:
    """Sessions that had ended while a job of theirs waited or ran."""
    by_kernel = {job.kernel: job for job in jobs}
    found = []
    for session in sessions:
        for kernel in session.kernels:
            job = by_kernel.get(kernel_part(KernelId(kernel.id)))
            if job is None or session.status not in TERMINAL:
                continue
            ended_at = session.status_since
            if job.ended is None or job.ended > ended_at + _TOLERANCE:
                until = "for ever" if job.ended is None else f"until {job.ended:%H:%M:%S}"
                found.append(f"{session.name} ended {session.reason} at {ended_at:%H:%M:%S}, its job {until}")
    return found


def jobs_allowed(replicas: int, seconds: float, walltime_s: float, losses: int) -> int:
    """Most jobs of a model with so many replicas: half of each walltime may be given up for successors that
    are ready in time. ``losses``: jobs that faults may have cost."""
    lives = math.ceil(seconds / (walltime_s / 2))
    return replicas * (lives + 1) + losses


def calls_allowed(seconds: float, streams: int, jobs: int) -> int:
    """Most calls to HEAppE: a list each second and what each job, each stream and its retries take."""
    return math.ceil(3 * seconds + 60 * jobs + 10 * streams)
