"""Interpretation of the facts about a job: its kernel's state, and whether it may still be billed.
Pure.

HEAppE's database lags behind the cluster by 30 to 60 seconds, at some sites permanently, and
reports running jobs as failed. No single source is therefore decisive: the state in the database,
the engine's probe through the tunnel, the job's own files, our intent, and the walltime are
combined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from moorage.agent.runtimes.base import RuntimeObservation
from moorage.agent.runtimes.batch import program_end
from moorage.agent.runtimes.heappe.wire import JobState
from moorage.common.model.status import ObservedState

# A listing older than this does not reflect the current state.
STALE_S = 120.0
# The delay with which the database may show that a job is running or has ended, with a margin.
LAG_S = 90.0
# A probe that succeeded within this time shows that the engine is alive.
PROBE_S = 300.0
# A job whose submission is in doubt and that never appears is given up after this time, because it
# may run although the database never shows it. A serving job is replaced sooner, because two of
# them do no harm.
DOUBT_S = 600.0
SERVING_DOUBT_S = 60.0
# Age of a job that was created but certainly never submitted, and whose creator is gone.
UNSUBMITTED_S = 60.0
# If a job is shown as ended before it was seen running, this is believed if the job itself reports
# nothing within this time, or within ``DOUBT_S`` if it cannot be queried.
SETTLE_S = 120.0
# A cancellation that had no effect is repeated after this time.
CANCEL_AGAIN_S = 60.0
# Time zone offsets are multiples of this.
_ZONE_S = 900.0
_SIGTERM = -15
# Descriptions of the attempts to resolve a job in doubt.
_FOLLOWED = "it is followed for as long as it answers"
_WATCHED = "it is not submitted again; if it appears, it is followed or cancelled"
_WALLTIME_OVER = "its walltime is over"
_NOT_CANCELLED = "HEAppE cannot cancel a job that it does not show as submitted"
_LOOKED_AT = "it is observed for a while before the end is believed"
_DELETED = f"{_NOT_CANCELLED}; its files are deleted, so that it finds nothing to run"
_QUEUED = frozenset({JobState.SUBMITTED, JobState.QUEUED, JobState.WAITING_FOR_ACCOUNT})
_SUBMITTED = frozenset({JobState.SUBMITTED, JobState.QUEUED, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one job. Times are in Unix seconds by the agent's clock; None if the event
    never happened.

    ``state``, ``reason``, ``started``: from the database; ``seen_at``: when they were read.
    ``refusal``: why the site refuses to answer, if it gave a reason. ``created_at``: when we
    created it; ``created``: the server's time for that. ``doubted_at``: when the answer to its
    submission was lost. ``running_at``: when it was first seen running. ``answered_at``,
    ``silent_at``: the last request or probe that reached the engine, and the last that certainly
    did not. ``gone_at``: since when its tunnel has been gone, for the reason in ``gone_why``.
    ``exit_code``: written by the job; ``terminated``: the job wrote that it had received SIGTERM;
    ``ended_at``: when that was first read. ``confirmed``: since the database showed it as ended, we
    have waited long enough for the job's own report. ``begun_late``: its program has started since
    then. ``stopping``: we cancelled it. ``deleted``: we deleted it, and this was confirmed.
    ``serves``: it serves a model.
    """

    now: float
    walltime_s: float
    state: JobState = JobState.UNKNOWN
    seen_at: float | None = None
    reason: str = ""
    refusal: str = ""
    started: datetime | None = None
    created: datetime | None = None
    created_at: float | None = None
    doubted_at: float | None = None
    running_at: float | None = None
    answered_at: float | None = None
    silent_at: float | None = None
    gone_at: float | None = None
    gone_why: str = ""
    exit_code: int | None = None
    ended_at: float | None = None
    terminated: bool = False
    confirmed: bool = False
    begun_late: bool = False
    stopping: bool = False
    deleted: bool = False
    serves: bool = False

    @property
    def answers(self) -> bool:
        """Whether the engine was reached recently, with no failure since."""
        return (
            self.answered_at is not None
            and self.now - self.answered_at <= PROBE_S
            and (self.silent_at is None or self.silent_at < self.answered_at)
        )


@dataclass(frozen=True, slots=True)
class Doubt:
    """A doubt about a job: ``why`` it may run and be billed although its kernel is considered ended
    or unreachable, and what was ``tried``. ``until``: when it can no longer run, in unix seconds; 0
    if unknown."""

    why: str
    tried: str
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Interpretation:
    """An interpretation. ``doubt``: None if there is no sign that the job may be billed without a
    kernel."""

    observation: RuntimeObservation
    doubt: Doubt | None = None


def interpret(facts: Facts, unreachable_timeout_s: float = 0.0) -> Interpretation:
    """Interpret the facts. ``unreachable_timeout_s``: how long a job with an unreachable engine is
    kept within its walltime."""
    ends_at = end_of_walltime(facts)
    found = _interpret(facts, ends_at)
    seen = found.observation
    if seen.state not in (ObservedState.RUNNING, ObservedState.UNKNOWN):
        return found

    seen = replace(seen, ends_at=ends_at)
    if seen.state is ObservedState.RUNNING and facts.gone_at is not None:
        kept_until = facts.gone_at + unreachable_timeout_s
        why = f"its engine cannot be reached: {facts.gone_why}"
        seen = replace(seen, unreachable=why, kept_until=min(kept_until, ends_at or kept_until))

    return replace(found, observation=seen)


def _interpret(facts: Facts, ends_at: float | None) -> Interpretation:
    if facts.deleted:
        return Interpretation(RuntimeObservation(ObservedState.GONE))
    if facts.exit_code is not None:
        return Interpretation(_exited(facts, facts.exit_code, ends_at))

    is_stale = facts.seen_at is None or facts.now - facts.seen_at > STALE_S
    if is_stale or facts.state is JobState.UNKNOWN:
        return _silent(facts)
    if facts.state is JobState.CONFIGURING:
        return _configuring(facts)

    if facts.state in _QUEUED:
        waiting = (
            "waiting for a cluster account" if facts.state is JobState.WAITING_FOR_ACCOUNT else ""
        )
        detail = facts.reason or waiting or "waiting in the queue of the site"
        return Interpretation(
            RuntimeObservation(
                ObservedState.QUEUED, detail=detail, expected_start=expected_start(facts)
            )
        )

    if facts.state is JobState.RUNNING:
        if ends_at is not None and facts.now > ends_at + LAG_S and not facts.answers:
            # Some sites' databases are never updated.
            return Interpretation(_ended_by_walltime())

        return Interpretation(RuntimeObservation(ObservedState.RUNNING))

    if facts.state is JobState.FINISHED:
        return Interpretation(RuntimeObservation(ObservedState.EXITED, 0))
    if facts.state is JobState.DELETED:
        return Interpretation(RuntimeObservation(ObservedState.GONE))

    return _failed(facts, ends_at)


def _silent(facts: Facts) -> Interpretation:
    """The state while the site is silent. A job that answers is running. The state of any other job
    is unknown."""
    if facts.answers:
        return Interpretation(RuntimeObservation(ObservedState.RUNNING))
    detail = facts.refusal or "the site does not answer"
    return Interpretation(RuntimeObservation(ObservedState.UNKNOWN, detail=detail))


def _configuring(facts: Facts) -> Interpretation:
    """The state of a job that was not submitted, or whose submission's answer was lost. A running
    job looks the same."""
    if facts.answers:
        why = "the site shows it as not submitted, but its engine answers"
        return Interpretation(RuntimeObservation(ObservedState.RUNNING), Doubt(why, _FOLLOWED))

    if facts.stopping:
        never = RuntimeObservation(ObservedState.EXITED, never_started=True)
        if facts.doubted_at is None:
            return Interpretation(never)

        until = facts.doubted_at + facts.walltime_s
        return Interpretation(
            never, Doubt("it was stopped while its submission was in doubt", _NOT_CANCELLED, until)
        )

    if facts.doubted_at is None:
        if facts.created_at is not None and facts.now - facts.created_at > UNSUBMITTED_S:
            detail = "the job was created, and its agent ended before it was submitted"
            return Interpretation(
                RuntimeObservation(ObservedState.EXITED, never_started=True, detail=detail)
            )

        detail = "submitting the job"
        return Interpretation(RuntimeObservation(ObservedState.QUEUED, detail=detail))

    if facts.now - facts.doubted_at <= (SERVING_DOUBT_S if facts.serves else DOUBT_S):
        detail = "the answer to the submission was lost: waiting for the job to appear"
        return Interpretation(
            RuntimeObservation(ObservedState.QUEUED, detail=detail),
            Doubt("the answer to the submission was lost", _WATCHED),
        )

    detail = "the answer to the submission was lost, and the job never appeared"
    until = facts.doubted_at
    until += facts.walltime_s
    return Interpretation(
        RuntimeObservation(ObservedState.EXITED, never_started=True, detail=detail),
        Doubt(detail, _WATCHED, until) if facts.now <= until else None,
    )


def cancel_due(last: tuple[JobState, float] | None, state: JobState, now: float) -> bool:
    """Whether to cancel a job that must end. ``last``: its state at the previous cancellation, and
    its time. HEAppE 6.3 does not save the cancellation of a job that it has not submitted, and
    submits it later."""
    if last is None:
        return True
    was_lost = last[0] not in _SUBMITTED and state in _SUBMITTED
    return was_lost or now - last[1] >= CANCEL_AGAIN_S


def _failed(facts: Facts, ends_at: float | None) -> Interpretation:
    """The state of a job that is shown as FAILED or CANCELED. A cancelled job may be shown as
    either, and so may a running job."""
    if facts.answers:
        detail = f"the site shows it as {_shown(facts.state)}, but its engine answers"
        return Interpretation(
            RuntimeObservation(ObservedState.UNKNOWN, detail=detail),
            Doubt(detail, _FOLLOWED, ends_at or 0.0),
        )

    if facts.stopping:
        return Interpretation(RuntimeObservation(ObservedState.EXITED, _SIGTERM))
    if ends_at is not None and facts.now >= ends_at - LAG_S:
        return Interpretation(_ended_by_walltime())
    if facts.running_at is None:
        return _failed_in_the_queue(facts)

    if facts.begun_late:
        detail = "the site shows it as ended, but its program has started since then"
        unknown = RuntimeObservation(ObservedState.UNKNOWN, detail=detail)
        return Interpretation(
            unknown, Doubt(detail, "it is followed through its output", ends_at or 0.0)
        )

    if facts.state is JobState.CANCELED:
        detail = "the job was cancelled at the site"
        return Interpretation(RuntimeObservation(ObservedState.EXITED, detail=detail))

    detail = f"the site shows it as failed{': ' if facts.reason else ''}{facts.reason}"
    # Only the database reports this, because the job wrote no exit code.
    doubt = Doubt(f"{detail}; the job did not report how it ended", _NOT_CANCELLED, ends_at or 0.0)
    return Interpretation(RuntimeObservation(ObservedState.EXITED, detail=detail), doubt)


def _shown(state: JobState) -> str:
    return "failed" if state is JobState.FAILED else "cancelled"


def _failed_in_the_queue(facts: Facts) -> Interpretation:
    """The state of a job that failed in the queue. If HEAppE does not understand the answer to a
    poll, it considers all jobs in it failed and stops querying them, but they keep waiting and run
    later."""
    why = f"the site shows it as {_shown(facts.state)}, but it was not seen running"
    waited_s = 0.0 if facts.created_at is None else max(0.0, facts.now - facts.created_at)
    until = facts.now + waited_s + facts.walltime_s  # if it waits that long again
    if not facts.confirmed:
        detail = f"{why}: it may still be waiting"
        unknown = RuntimeObservation(ObservedState.UNKNOWN, detail=detail)
        return Interpretation(unknown, Doubt(why, _LOOKED_AT, until))

    detail = f"the job ended before it was seen running: {facts.reason or facts.state.name}"
    never = RuntimeObservation(ObservedState.EXITED, never_started=True, detail=detail)
    if facts.state is not JobState.FAILED:
        return Interpretation(never)

    if waited_s >= 3 * facts.walltime_s:
        # Clusters with callbacks are not polled.
        why = (
            "it waited for three times its walltime, after which sites with callbacks only guess "
            "that it failed"
        )

    return Interpretation(never, Doubt(why, _DELETED, until))


def _exited(facts: Facts, code: int, ends_at: float | None) -> RuntimeObservation:
    """The state of a job that has written its program's outcome."""
    if _ended_at_walltime(facts, ends_at):
        return RuntimeObservation(
            ObservedState.EXITED, code, detail=_WALLTIME_OVER, walltime_over=True
        )
    counts, detail = program_end(code, facts.terminated)
    return RuntimeObservation(ObservedState.EXITED, counts, detail=detail)


def _ended_at_walltime(facts: Facts, ends_at: float | None) -> bool:
    """Whether the walltime ended the job. Many engines treat the SIGTERM at the walltime as an
    orderly end and exit with 0. A program that ends without SIGTERM ended by itself, even at the
    last moment."""
    return (
        facts.terminated
        and not facts.stopping
        and ends_at is not None
        and (facts.ended_at or facts.now) >= ends_at - LAG_S
    )


def _ended_by_walltime() -> RuntimeObservation:
    return RuntimeObservation(ObservedState.EXITED, detail=_WALLTIME_OVER, walltime_over=True)


def end_of_walltime(facts: Facts) -> float | None:
    """The earliest plausible end of the walltime; None until the job has been seen running."""
    if facts.running_at is None or facts.walltime_s <= 0:
        return None
    return _start(facts, facts.running_at) + facts.walltime_s


def _start(facts: Facts, running_at: float) -> float:
    """When the job started. The server's time is used only if it agrees with our observation."""
    if facts.started is not None:
        started = _corrected(facts.started.timestamp(), running_at)
        if running_at - LAG_S <= started <= running_at + 10:
            return min(started, running_at)
    return running_at - LAG_S


def _corrected(reported: float, known: float) -> float:
    """One of the server's times in our zone: it is shifted by the offset that brings it closest to
    ``known``."""
    return reported + round((known - reported) / _ZONE_S) * _ZONE_S


def expected_start(facts: Facts) -> float | None:
    """When the scheduler expects to start a waiting job, by the agent's clock; None if there is no
    estimate."""
    if facts.started is None:
        return None
    offset = 0.0
    if facts.created is not None and facts.created_at is not None:
        offset = _corrected(facts.created.timestamp(), facts.created_at) - facts.created.timestamp()
    start = facts.started.timestamp() + offset
    return start if start > facts.now else None
