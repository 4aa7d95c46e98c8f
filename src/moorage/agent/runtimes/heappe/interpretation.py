"""Interpretation of what is known about a job: the state of its kernel, and whether it may still
cost. Pure.

HEAppE's database lags behind the cluster by 30 to 60 seconds, on some sites for ever, and reports
jobs as failed that run on. So no single source decides: the state in the database, the probe of the
engine through the tunnel, what the job wrote itself, our own intent, and the walltime count
together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from moorage.agent.runtimes.base import RuntimeObservation
from moorage.agent.runtimes.batch import program_end
from moorage.agent.runtimes.heappe.wire import JobState
from moorage.common.model.status import ObservedState

# A listing older than this says nothing about now.
STALE_S = 120.0
# How late the database may show that a job runs or has ended, with a margin.
LAG_S = 90.0
# A probe that succeeded within this time shows that the engine lives.
PROBE_S = 300.0
# A job whose submit is in doubt and that never shows is given up after this time: it may run,
# though the database never says so. One that serves is replaced sooner, since two of them do no
# harm.
DOUBT_S = 600.0
SERVING_DOUBT_S = 60.0
# A job that was created and certainly never submitted: whoever created it has gone.
UNSUBMITTED_S = 60.0
# An end that shows before the job was seen running is believed if the job itself still says nothing
# after this time, and after ``DOUBT_S`` if it cannot be asked.
SETTLE_S = 120.0
# A cancel that had no effect is repeated after this time.
CANCEL_AGAIN_S = 60.0
# Offsets of time zones are multiples of this.
_ZONE_S = 900.0
_SIGTERM = -15
# What is tried with a job in doubt.
_FOLLOWED = "it is followed for as long as it answers"
_WATCHED = "it is not submitted again; if it shows, it is followed or cancelled"
_WALLTIME_OVER = "its walltime is over"
_NOT_CANCELLED = "HEAppE cancels no job that it does not show as submitted"
_LOOKED_AT = "it is looked at for a while before the end is believed"
_DELETED = f"{_NOT_CANCELLED}; its files are deleted, so that it finds nothing to run"
_QUEUED = frozenset({JobState.SUBMITTED, JobState.QUEUED, JobState.WAITING_FOR_ACCOUNT})
_SUBMITTED = frozenset({JobState.SUBMITTED, JobState.QUEUED, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about one job. Times are Unix seconds by the clock of the agent, None if it
    never happened.

    ``state``, ``reason``, ``started``: as the database shows them; ``seen_at``: when it was read.
    ``refusal``: why the site says nothing, if it does say that. ``created_at``: when we created it;
    ``created``: what the server says about that. ``doubted_at``: when the answer to its submit was
    lost. ``running_at``: when it was first seen running. ``answered_at``, ``silent_at``: the last
    request or probe that reached the engine, and that certainly did not. ``gone_at``: since when
    its way is gone, and ``gone_why``. ``exit_code``: as the job wrote it; ``terminated``: it wrote
    that it had got SIGTERM; ``ended_at``: when that was first read. ``confirmed``: what the job
    itself says was looked for long enough since the database shows its end. ``begun_late``: its
    program has begun since then. ``stopping``: we cancelled it. ``deleted``: we deleted it, and
    that was confirmed. ``serves``: a model.
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
        """The engine was reached lately, and not missed since."""
        return (
            self.answered_at is not None
            and self.now - self.answered_at <= PROBE_S
            and (self.silent_at is None or self.silent_at < self.answered_at)
        )


@dataclass(frozen=True, slots=True)
class Doubt:
    """``why`` the job may run and cost although its kernel counts as ended or cannot be reached,
    and what was ``tried``. ``until``: unix seconds after which it cannot run any more; 0:
    unknown."""

    why: str
    tried: str
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Interpretation:
    """``doubt``: None if there is no sign that the job may cost without a kernel."""

    observation: RuntimeObservation
    doubt: Doubt | None = None


def interpret(facts: Facts, unreachable_timeout_s: float = 0.0) -> Interpretation:
    """``unreachable_timeout_s``: how long a job is kept whose engine cannot be reached, while its
    walltime lasts."""
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
            # The database of some sites is never brought up to date.
            return Interpretation(_ended_by_walltime())

        return Interpretation(RuntimeObservation(ObservedState.RUNNING))

    if facts.state is JobState.FINISHED:
        return Interpretation(RuntimeObservation(ObservedState.EXITED, 0))
    if facts.state is JobState.DELETED:
        return Interpretation(RuntimeObservation(ObservedState.GONE))

    return _failed(facts, ends_at)


def _silent(facts: Facts) -> Interpretation:
    """The site does not say. A job that answers runs; of any other nothing is known."""
    if facts.answers:
        return Interpretation(RuntimeObservation(ObservedState.RUNNING))
    detail = facts.refusal or "the site does not answer"
    return Interpretation(RuntimeObservation(ObservedState.UNKNOWN, detail=detail))


def _configuring(facts: Facts) -> Interpretation:
    """Not submitted, or submitted by a call whose answer was lost: a job that runs reads the
    same."""
    if facts.answers:
        why = "the site shows it as not submitted, and its engine answers"
        return Interpretation(RuntimeObservation(ObservedState.RUNNING), Doubt(why, _FOLLOWED))

    if facts.stopping:
        never = RuntimeObservation(ObservedState.EXITED, never_started=True)
        if facts.doubted_at is None:
            return Interpretation(never)

        until = facts.doubted_at + facts.walltime_s
        return Interpretation(
            never, Doubt("it was stopped while its submit was in doubt", _NOT_CANCELLED, until)
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
        detail = "the answer to the submit was lost: waiting for the job to show"
        return Interpretation(
            RuntimeObservation(ObservedState.QUEUED, detail=detail),
            Doubt("the answer to the submit was lost", _WATCHED),
        )

    detail = "the answer to the submit was lost, and the job never showed"
    until = facts.doubted_at
    until += facts.walltime_s
    return Interpretation(
        RuntimeObservation(ObservedState.EXITED, never_started=True, detail=detail),
        Doubt(detail, _WATCHED, until) if facts.now <= until else None,
    )


def cancel_due(last: tuple[JobState, float] | None, state: JobState, now: float) -> bool:
    """Whether to cancel a job that is to end. ``last``: its state at the cancel before, and when
    that was.
    6.3 does not save the cancel of a job that it has not submitted, and submits it later."""
    if last is None:
        return True
    was_lost = last[0] not in _SUBMITTED and state in _SUBMITTED
    return was_lost or now - last[1] >= CANCEL_AGAIN_S


def _failed(facts: Facts, ends_at: float | None) -> Interpretation:
    """FAILED or CANCELED. A cancelled job reads either; a job that runs may read both."""
    if facts.answers:
        detail = f"the site shows it as {_shown(facts.state)}, and its engine answers"
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
        detail = "the site shows it as ended, and its program has begun since then"
        unknown = RuntimeObservation(ObservedState.UNKNOWN, detail=detail)
        return Interpretation(
            unknown, Doubt(detail, "it is followed by what it writes", ends_at or 0.0)
        )

    if facts.state is JobState.CANCELED:
        detail = "the job was cancelled at the site"
        return Interpretation(RuntimeObservation(ObservedState.EXITED, detail=detail))

    detail = f"the site shows it as failed{': ' if facts.reason else ''}{facts.reason}"
    # Nothing but the database says so: the job wrote no exit code.
    doubt = Doubt(f"{detail}; the job did not say how it ended", _NOT_CANCELLED, ends_at or 0.0)
    return Interpretation(RuntimeObservation(ObservedState.EXITED, detail=detail), doubt)


def _shown(state: JobState) -> str:
    return "failed" if state is JobState.FAILED else "cancelled"


def _failed_in_the_queue(facts: Facts) -> Interpretation:
    """HEAppE takes all jobs of a poll for failed whose answer it does not understand, and asks for
    them no more: they wait on, and run."""
    why = f"the site shows it as {_shown(facts.state)}, and it was not seen running"
    waited_s = 0.0 if facts.created_at is None else max(0.0, facts.now - facts.created_at)
    until = facts.now + waited_s + facts.walltime_s  # if it waits as long again
    if not facts.confirmed:
        detail = f"{why}: it may wait on"
        unknown = RuntimeObservation(ObservedState.UNKNOWN, detail=detail)
        return Interpretation(unknown, Doubt(why, _LOOKED_AT, until))

    detail = f"the job ended before it was seen running: {facts.reason or facts.state.name}"
    never = RuntimeObservation(ObservedState.EXITED, never_started=True, detail=detail)
    if facts.state is not JobState.FAILED:
        return Interpretation(never)

    if waited_s >= 3 * facts.walltime_s:
        # Clusters that call back are not polled.
        why = (
            "it waited for three times its walltime, after which sites that call back only guess "
            "that it "
            "failed"
        )

    return Interpretation(never, Doubt(why, _DELETED, until))


def _exited(facts: Facts, code: int, ends_at: float | None) -> RuntimeObservation:
    """The job has written how its program ended."""
    if _ended_at_walltime(facts, ends_at):
        return RuntimeObservation(
            ObservedState.EXITED, code, detail=_WALLTIME_OVER, walltime_over=True
        )
    counts, detail = program_end(code, facts.terminated)
    return RuntimeObservation(ObservedState.EXITED, counts, detail=detail)


def _ended_at_walltime(facts: Facts, ends_at: float | None) -> bool:
    """Many engines take the SIGTERM of the walltime as an orderly end, and exit with 0. A program
    that ends without it has ended by itself, at its last moment, too."""
    return (
        facts.terminated
        and not facts.stopping
        and ends_at is not None
        and (facts.ended_at or facts.now) >= ends_at - LAG_S
    )


def _ended_by_walltime() -> RuntimeObservation:
    return RuntimeObservation(ObservedState.EXITED, detail=_WALLTIME_OVER, walltime_over=True)


def end_of_walltime(facts: Facts) -> float | None:
    """The end of the walltime, at the earliest that is plausible; None until the job was seen
    running."""
    if facts.running_at is None or facts.walltime_s <= 0:
        return None
    return _start(facts, facts.running_at) + facts.walltime_s


def _start(facts: Facts, running_at: float) -> float:
    """When the job started. The server's time counts only if it fits to when we saw it running."""
    if facts.started is not None:
        started = _corrected(facts.started.timestamp(), running_at)
        if running_at - LAG_S <= started <= running_at + 10:
            return min(started, running_at)
    return running_at - LAG_S


def _corrected(reported: float, known: float) -> float:
    """A time of the server in our zone: it is shifted by the offset that brings it next to
    ``known``."""
    return reported + round((known - reported) / _ZONE_S) * _ZONE_S


def expected_start(facts: Facts) -> float | None:
    """The scheduler's estimate for a job that waits, by the clock of the agent; None if there is
    none."""
    if facts.started is None:
        return None
    offset = 0.0
    if facts.created is not None and facts.created_at is not None:
        offset = _corrected(facts.created.timestamp(), facts.created_at) - facts.created.timestamp()
    start = facts.started.timestamp() + offset
    return start if start > facts.now else None
