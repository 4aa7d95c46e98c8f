"""Interpretation of a Slurm job: its kernel's state, derived from the job's state, reason and
launcher. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.agent.runtimes.base import RuntimeObservation
from moorage.agent.runtimes.batch import JobCandidate, program_end
from moorage.common.model.status import ObservedState

# Slurm states in which a job waits, holds a node, or has left it. Any other state is unknown.
WAITING = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
        "CONFIGURING",
    }
)
HOLDING = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "SIGNALING", "RESIZING"}
)
ENDED = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "DEADLINE",
        "PREEMPTED",
        "NODE_FAIL",
        "BOOT_FAIL",
        "OUT_OF_MEMORY",
        "REVOKED",
    }
)
# The meanings of Slurm's most frequent reasons. Others are shown unchanged.
_REASONS = {
    "Priority": "jobs with a higher priority are ahead of it",
    "Resources": "waits for resources to become free",
    "Dependency": "waits for a dependency",
    "QOSMaxJobsPerUserLimit": "the QOS runs no more jobs of this user",
    "AssocMaxJobsLimit": "the account runs no more jobs",
    "AssocGrpBillingMinutes": "the project has used up its hours",
    "AssocGrpCPUMinutesLimit": "the project has used up its hours",
    "PartitionConfig": (
        "the partition cannot run it: it requests more than a node has or than is allowed"
    ),
    "PartitionTimeLimit": "it requests more walltime than the partition allows",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "ReqNodeNotAvail": "nodes that it needs are reserved or down, often for maintenance",
    "Maintenance": "the site is in maintenance",
    "BeginTime": "its earliest start is later",
    "JobHeldUser": "held by the user: scontrol release",
    "JobHeldAdmin": "held by an administrator of the site",
    "launch failed requeued held": "its launch failed; the site holds it",
}
_SIGTERM = 15
_SIGKILL = 9
# Slurm kills jobs slightly after the walltime, and the nodes' clocks differ.
_WALLTIME_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One row of ``squeue``. Times are in unix seconds, None if Slurm does not report them.
    ``status``: as in wait(2)."""

    job_id: str
    name: str
    state: str
    reason: str = ""
    start: float | None = None
    end: float | None = None
    status: int = 0
    kernel_id: str = ""

    @property
    def is_active(self) -> bool:
        """Whether the job waits or holds a node. An unknown state is treated as active, so that a
        job is never forgotten because of its state."""
        return self.state not in ENDED

    @property
    def is_ending(self) -> bool:
        """Whether the job has ended, except for Slurm's cleanup, and will never run again."""
        return self.state == "COMPLETING" or not self.is_active

    def candidate(self) -> JobCandidate:
        return JobCandidate(self.job_id, not self.is_ending, self.state in HOLDING)


@dataclass(frozen=True, slots=True)
class Exit:
    """How the program ended, as reported by its launcher. ``reason``: ``terminated`` if the job had
    received SIGTERM. ``at``: unix seconds by the clock of the job's node. ``oom``: Linux has killed
    one of the job's processes for lack of memory."""

    code: int | None
    reason: str = ""
    never_started: bool = False
    at: float = 0.0
    oom: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """Facts about the job in addition to Slurm's view. ``address``: set once the program has
    started; its port is 0 if it has only ``app_ports``. ``ends_at``: the last known end of the
    walltime. ``stopped``: the agent has requested that it stop. ``output``: the output from Slurm
    and the launcher themselves."""

    address: tuple[str, int] | None = None
    exit: Exit | None = None
    ends_at: float | None = None
    stopped: bool = False
    output: str = ""
    app_ports: Mapping[str, int] = field(default_factory=dict)


def interpret(
    job: SlurmJob | None, marks: Marks, *, submitted: bool = True, never: bool = False
) -> RuntimeObservation:
    """Interpret a job. ``job``: None if the site does not list it. ``submitted``: the site has
    confirmed it. ``never``: the agent has waited for it long enough to conclude that the site did
    not accept it."""
    if job is not None and job.state in WAITING:
        return RuntimeObservation(
            ObservedState.QUEUED, detail=explain(job), expected_start=job.start
        )

    if marks.exit is not None:
        oom = marks.exit.oom or (job is not None and job.state == "OUT_OF_MEMORY")
        return _exited(marks.exit, marks, oom=oom, all_exited=job is None or not job.is_active)
    if job is None:
        return _unlisted(marks, submitted, never)
    if job.state in ENDED:
        return _ended(job, marks)

    started = marks.address is not None
    detail = "" if job.state == "RUNNING" else f"its job is {job.state}"
    return RuntimeObservation(
        ObservedState.RUNNING if started else ObservedState.CREATING,
        detail=detail,
        ends_at=job.end,
        address=marks.address if marks.address and (marks.address[1] or marks.app_ports) else None,
        app_ports=marks.app_ports,
    )


def explain(job: SlurmJob) -> str:
    """The reason why the job is waiting."""
    if job.state != "PENDING":
        return {"CONFIGURING": "its nodes are being prepared"}.get(
            job.state, f"its job is {job.state}"
        )

    if job.reason in ("", "None"):
        return "the site has not considered it yet"

    # For example "ReqNodeNotAvail, UnavailableNodes:cn1".
    word = job.reason.partition(",")[0]
    meaning = _REASONS.get(job.reason) or _REASONS.get(word, "")
    return f"{job.reason}: {meaning}" if meaning else job.reason


def _unlisted(marks: Marks, submitted: bool, never: bool) -> RuntimeObservation:
    if never:
        detail = "the site did not answer its submission, and has not listed the job since"
        return RuntimeObservation(ObservedState.EXITED, never_started=True, detail=detail)

    if not submitted:
        return RuntimeObservation(
            ObservedState.QUEUED,
            detail="its submission was not answered; watching for the job to appear",
        )

    started = marks.address is not None
    detail = "the site no longer lists its job" + (
        "" if started else ", which had not started its program"
    )
    return RuntimeObservation(ObservedState.GONE, detail=detail)


def _exited(end: Exit, marks: Marks, *, oom: bool, all_exited: bool) -> RuntimeObservation:
    over = marks.ends_at is not None and end.at >= marks.ends_at - _WALLTIME_MARGIN_S
    # Many engines treat SIGTERM as an orderly end and exit with 0.
    ended = end.code is not None and (end.code < 0 or end.reason == "terminated")
    over = over and not marks.stopped and ended
    code, detail = program_end(end.code, end.reason == "terminated" and not over)

    return RuntimeObservation(
        ObservedState.EXITED,
        code,
        oom=oom,
        all_exited=all_exited,
        never_started=end.never_started,
        detail=end.reason if end.never_started else detail,
        lease_expired=end.reason == "no-contact",
        walltime_over=over,
    )


def _ended(job: SlurmJob, marks: Marks) -> RuntimeObservation:
    """The outcome of a job that has left its node, and whose launcher did not report how the
    program ended."""
    state = job.state
    exited = ObservedState.EXITED
    if state in ("TIMEOUT", "DEADLINE"):
        return RuntimeObservation(
            exited, -_SIGKILL, walltime_over=True, detail=f"its job ended as {state}"
        )

    if state in ("NODE_FAIL", "BOOT_FAIL"):
        return RuntimeObservation(
            ObservedState.GONE, detail=f"its job ended as {state}: its node failed"
        )

    if state == "OUT_OF_MEMORY":
        return RuntimeObservation(
            exited, -_SIGKILL, oom=True, detail="its job ended as OUT_OF_MEMORY"
        )

    if state == "PREEMPTED":
        return RuntimeObservation(exited, -_SIGTERM, detail="the site preempted its job")

    if state in ("CANCELLED", "REVOKED"):
        if marks.stopped or marks.address is not None:
            return RuntimeObservation(exited, -_SIGTERM, detail="its job was cancelled")

        return RuntimeObservation(
            exited, never_started=True, detail="its job was cancelled before it started"
        )

    code = exit_code(job.status)
    if marks.address is None:
        output = f": {marks.output}" if marks.output else ""
        detail = (
            f"its job ended as {state} ({job.reason}, exit code {code}) before the program "
            f"started{output}"
        )
        return RuntimeObservation(exited, never_started=True, detail=detail)

    return RuntimeObservation(exited, code)


def exit_code(status: int) -> int:
    """The exit code, negative for a signal."""
    return -(status & 127) if status & 127 else status >> 8
