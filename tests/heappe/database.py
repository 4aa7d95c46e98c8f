"""Database of the test server: jobs as HEAppE knows them, which lags behind the cluster and can be
wrong.

States are HEAppE's numbers. ``poll`` copies the cluster's truth; an ended job is never polled
again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.heappe.cluster import Submission, TruthJob
from tests.heappe.site import NodeType, Project, Site, Template, User, stamp, template_view
from tests.heappe.switches import Switches

CONFIGURING = 1
SUBMITTED = 2
QUEUED = 4
RUNNING = 8
FINISHED = 16
FAILED = 32
CANCELED = 64
WAITING = 128
DELETED = 256
ENDED = frozenset({FINISHED, FAILED, CANCELED, DELETED})
NAMES = {
    1: "Configuring", 2: "Submitted", 4: "Queued", 8: "Running", 16: "Finished", 32: "Failed", 64: "Canceled",
    128: "WaitingForServiceAccount", 256: "Deleted",
}  # fmt: skip
BY_CALLBACK = 1
BY_USER = 2
BY_POLL = 3

# Slurm's state in HEAppE's numbers. COMPLETING reads as Running, and everything not listed here as
# Failed.
_MAPPED = {
    "PENDING": QUEUED, "CONFIGURING": QUEUED, "REQUEUED": QUEUED, "RUNNING": RUNNING, "COMPLETING": RUNNING,
    "COMPLETED": FINISHED, "SPECIAL_EXIT": FINISHED, "STOPPED": CANCELED, "SUSPENDED": CANCELED,
    "RESIZING": CANCELED, "STAGE_OUT": CONFIGURING, "SIGNALING": CONFIGURING,
}  # fmt: skip


def mapped(state: str, cancelled_reads: int) -> int:
    """``cancelled_reads``: Slurm prints CANCELLED, which HEAppE's enumeration spells with one L."""
    return cancelled_reads if state.startswith("CANCELLED") else _MAPPED.get(state, FAILED)


@dataclass
class Task:
    id: int
    spec: Submission
    template: Template
    node_type: NodeType
    project: Project
    priority: int = 4
    log: str = "log.txt"
    scheduler_id: str = ""
    state: int = CONFIGURING
    start: datetime | None = None
    end: datetime | None = None
    reason: str | None = None
    error: str | None = None
    nodes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


@dataclass
class Job:
    id: int
    name: str
    owner: User
    project: Project
    tasks: list[Task]
    directory: Path
    waiting_limit_s: int = 0
    sub_project: str | None = None
    state: int = CONFIGURING
    source: int = 0
    created: datetime | None = None
    submitted: datetime | None = None
    updated: datetime | None = None
    fresh: bool = True

    @property
    def start(self) -> datetime | None:
        return min((task.start for task in self.tasks if task.start), default=None)

    @property
    def end(self) -> datetime | None:
        ends = [task.end for task in self.tasks]
        return max(end for end in ends if end) if ends and all(ends) else None


@dataclass
class Database:
    """Rows by id. ``copy`` brings in the cluster's truth."""

    site: Site
    switches: Switches
    profile: str
    jobs: dict[int, Job] = field(default_factory=dict)
    next_job: int = 1_000_001
    next_task: int = 2_000_001
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def task(self, number: int) -> tuple[Job, Task] | None:
        for job in self.jobs.values():
            for task in job.tasks:
                if task.id == number:
                    return job, task
        return None

    def polled(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in (SUBMITTED, QUEUED, RUNNING)]

    def copy(self, job: Job, truths: dict[str, TruthJob], now: datetime, source: int) -> None:
        """Copy the truth for one job. A task that is no longer known to the scheduler has
        failed."""
        for task in job.tasks:
            if task.state in ENDED or not task.scheduler_id:
                continue

            truth = truths.get(task.scheduler_id)
            if truth is None:
                task.end = now
                self._set(job, task, FAILED)
                continue

            task.start = truth.started
            task.end = truth.ended
            task.reason = truth.reason
            task.nodes = truth.nodes
            task.addresses = truth.addresses
            self._set(job, task, mapped(truth.state, self.switches.cancelled_reads))

        self.combine(job, now, source)

    def fail(self, job: Job, now: datetime, error: str | None = None) -> None:
        for task in job.tasks:
            if task.state not in ENDED:
                task.end = now
                task.error = error
                self._set(job, task, FAILED)
        self.combine(job, now, BY_POLL)

    def cancel(self, job: Job, now: datetime) -> None:
        for task in job.tasks:
            task.end = now
            self._set(job, task, CANCELED)
        self.combine(job, now, BY_USER)

    def _set(self, job: Job, task: Task, state: int) -> None:
        if task.state != state:
            task.state = state
            data = {
                "jobId": job.id,
                "taskId": task.id,
                "state": NAMES[state],
                "errorMessage": task.error,
            }
            self.events.append(("org.heappe.task.state-changed", data))

    def combine(self, job: Job, now: datetime, source: int) -> None:
        """One failed, running or cancelled task determines the job's state."""
        states = {task.state for task in job.tasks}
        order = (FAILED, RUNNING, CANCELED, QUEUED, SUBMITTED, CONFIGURING)
        state = next((found for found in order if found in states), FINISHED)
        if state != job.state:
            job.state = state
            self.events.append(
                ("org.heappe.job.state-changed", {"jobId": job.id, "state": NAMES[state]})
            )

        job.source = source
        job.updated = now

    def overdue_waiting(self, now: datetime) -> list[Job]:
        return [
            job
            for job in self.polled()
            if job.state in (SUBMITTED, QUEUED)
            and job.waiting_limit_s
            and job.submitted
            and now - job.submitted > timedelta(seconds=job.waiting_limit_s)
        ]

    def overdue_callback(self, now: datetime) -> list[Job]:
        """On clusters with callbacks, HEAppE only guesses from the walltime."""
        found = []
        for job in self.polled():
            walltime = job.tasks[0].spec.walltime_s
            waited = job.state != RUNNING and now - job.submitted > timedelta(seconds=3 * walltime)
            ran = job.state == RUNNING and now - job.start > timedelta(seconds=walltime + 60)
            if waited or ran:
                found.append(job)
        return found


class Views:
    """Rows as the API returns them."""

    def __init__(self, site: Site, switches: Switches, profile: str) -> None:
        self._site = site
        self._switches = switches
        self._profile = profile

    def time(self, moment: datetime | None, *, fresh: bool = False) -> str | None:
        """6.3.2: UTC without a zone, with Z only from CreateJob. 6.4 and later: the cluster's
        zone."""
        if moment is None:
            return None

        moment += timedelta(seconds=self._switches.clock_skew_s)
        local = self._switches.local_times
        if self._profile == "6.5" if local is None else local:
            there = moment.astimezone(ZoneInfo(self._site.zone))
            offset = there.strftime("%z")
            return stamp(
                there, f"{offset[:3]}:{offset[3:]}" if self._switches.times_with_offset else ""
            )

        return stamp(moment, "Z" if fresh else "")

    def job(self, job: Job, now: datetime, *, fresh: bool = False) -> dict[str, Any]:
        view: dict[str, Any] = {"Id": job.id, "Name": job.name, "State": job.state}
        if self._profile == "6.5":
            view |= {"StateSource": job.source, "StateUpdatedAt": self.time(job.updated)}

        end = job.end or now
        allocated = (end - job.start).total_seconds() if job.start and job.start <= end else 0.0
        return view | {
            "CreationTime": self.time(job.created, fresh=fresh),
            "SubmitTime": self.time(job.submitted),
            "StartTime": self.time(job.start),
            "EndTime": self.time(job.end),
            "TotalAllocatedTime": allocated,
            "SubProject": job.sub_project,
            "Tasks": [self._task(task, now) for task in job.tasks],
        }

    def _task(self, task: Task, now: datetime) -> dict[str, Any]:
        view: dict[str, Any] = {"Id": task.id, "Name": task.spec.task_name, "State": task.state}
        if self._profile == "6.5":
            view |= {"StateSource": BY_POLL, "StateUpdatedAt": None}

        end = task.end or now
        allocated = (end - task.start).total_seconds() if task.start and task.start <= end else 0.0
        kind = task.node_type
        project = task.project

        return view | {
            "Priority": task.priority,
            "AllocatedTime": allocated,
            "AllocatedCoreIds": list(task.nodes),
            "StartTime": self.time(task.start),
            "EndTime": self.time(task.end),
            "NodeType": {
                "Id": kind.id,
                "Name": kind.name,
                "Description": f"Node type {kind.name}",
                "Project": {
                    "Id": project.id,
                    "Name": project.accounting,
                    "Description": f"Project {project.accounting}",
                    "AccountingString": project.accounting,
                    "CommandTemplate": template_view(task.template),
                },
            },
            "ErrorMessage": task.error,
            "CpuHyperThreading": False,
            "Reason": task.reason,
        }
