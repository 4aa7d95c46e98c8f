"""Reconciles a session with its kernels, its deadline and the requests about it. Pure.

Each rule looks at all kernels of the current attempt together, regardless of how they reached their
state, and yields one transition of the table in ``transitions.py``, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from moorage.common.model.cluster import MAIN
from moorage.common.model.ids import AgentId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import IN_ORDERS, STARTING, TERMINAL, Result, SessionType, Status
from moorage.manager.lifecycle.deadlines import deadline_s, run_limit_reason, run_limit_s
from moorage.manager.lifecycle.kernels import STATUS_ORDER
from moorage.manager.lifecycle.losses import (
    describe_loss,
    describe_losses,
    lost_sub_kernels,
    may_degrade,
    tells_losses,
)
from moorage.manager.lifecycle.snapshots import KernelSnapshot, SessionSnapshot, SharedRun
from moorage.manager.lifecycle.transitions import NEW_ATTEMPT, Event, Transition, next_status

# Reasons that mean that a batch session's own program failed, as opposed to a stop, a timeout or a
# node failure.
PROGRAM_FAILED = frozenset({Reason.EXIT_NONZERO, Reason.OOM, Reason.KILLED})
PROGRAM_RAN = PROGRAM_FAILED | {Reason.EXIT_ZERO, Reason.TASKS_FAILED}
# Reasons that mean that a program is known to have ended with its node.
_ENDED_WITH_NODE = frozenset({Reason.KERNEL_GONE, Reason.AGENT_LOST, Reason.LEASE_EXPIRED})
BACKOFF_MAX_S = 300.0
_STEPS = {
    Status.PREPARING: Event.PREPARING,
    Status.QUEUED: Event.QUEUED,
    Status.CREATING: Event.CREATING,
}


def stop_session(
    session: SessionSnapshot, actor: str, reason: Reason, lost_grace_s: float, *, detail: str = ""
) -> Transition | None:
    """The transition for a stop, which every status accepts, or None if the session is ending or
    has ended."""
    if session.status in TERMINAL or session.status is Status.TERMINATING:
        return None
    return _transition(session, Event.STOP, lost_grace_s, reason, actor=actor, detail=detail)


def requeue_session(session: SessionSnapshot, actor: str, lost_grace_s: float) -> Transition | None:
    """The transition that stops a batch session's program and returns the session to the queue.
    None if it holds no resources. It counts no retry."""
    if session.spec.type is not SessionType.BATCH or not _holds_resources(session):
        return None
    return _transition(session, Event.SEND_BACK, lost_grace_s, Reason.REQUEUED, actor=actor)


def preempt_session(
    session: SessionSnapshot, mode: str, preemptor: str, lost_grace_s: float
) -> Transition | None:
    """The transition that frees resources for ``preemptor`` (a session's id).

    ``mode`` "requeue" returns the session to the queue, "end" stops it; either way its own
    stop_grace_s applies. None if it no longer holds resources, or if all its kernels have ended.
    """
    if not _holds_resources(session):
        return None

    event = Event.STOP if mode == "end" else Event.PREEMPT
    detail = f"for session {preemptor}, which has a higher priority"
    if (checkpoint := session.spec.checkpoint) is not None and session.status is Status.RUNNING:
        detail += (
            f"; it requested SIG{checkpoint.signal} and {checkpoint.grace_s:g} s to save its state"
        )

    return _transition(
        session, event, lost_grace_s, Reason.PREEMPTED, detail=detail, actor="scheduler"
    )


def drain_session(
    session: SessionSnapshot, agent_id: str, actor: str, lost_grace_s: float
) -> Transition | None:
    """The transition for a session that is still on an agent at the agent's drain deadline.

    A batch session with ``retries`` returns to the queue. Every other session is stopped; endpoints
    create replacement replicas.
    """
    if not _holds_resources(session):
        return None

    requeue = session.spec.type is SessionType.BATCH and session.spec.retries > 0
    event = Event.PREEMPT if requeue else Event.STOP
    detail = f"agent {agent_id} was drained"
    return _transition(
        session, event, lost_grace_s, Reason.AGENT_DRAINED, detail=detail, actor=actor
    )


def reconcile_session(
    session: SessionSnapshot, now: datetime, lost_grace_s: float, *, deadlines: bool = True
) -> Transition | None:
    """The transition that a session's kernels and deadline currently call for. The first rule that
    matches wins. If ``deadlines`` is false, passed deadlines are ignored."""
    overdue = deadlines and session.deadline_at is not None and now >= session.deadline_at
    if session.status in TERMINAL:
        return None
    if session.status is Status.PENDING:
        return _reconcile_pending(session, overdue, lost_grace_s)
    if all(kernel.status in TERMINAL for kernel in session.kernels):
        return _all_kernels_ended(session, lost_grace_s)
    if session.status is Status.TERMINATING:
        return _stop_overdue(session) if overdue else None
    if (lost_agent := _agent_lost(session, lost_grace_s)) is not None:
        return lost_agent

    main = _main_kernel(session.kernels)
    lost = lost_sub_kernels(session)
    if main.status in TERMINAL:
        event = Event.COMPLETED if main.status is Status.TERMINATED else Event.FAIL
        return _kernel_failed(
            session,
            main.reason or Reason.KERNEL_GONE,
            detail=main.detail,
            lost_grace_s=lost_grace_s,
            final=event,
        )

    if lost and not (session.status is Status.RUNNING and may_degrade(session.spec)):
        reason = lost[0].reason or Reason.KERNEL_GONE
        return _kernel_failed(session, reason, describe_loss(lost[0]), lost_grace_s)

    if overdue:
        if session.status is Status.RUNNING:
            return _end_at_run_limit(session, now, lost_grace_s)
        if _is_silent(session):
            return None
        if session.status is Status.QUEUED:
            detail = _main_kernel(session.kernels).detail
            return _kernel_failed(session, Reason.QUEUE_TIMEOUT, detail, lost_grace_s)

        detail = f"no kernel became ready while the session was {session.status}"
        return _kernel_failed(session, Reason.START_TIMEOUT, detail, lost_grace_s)

    return (
        _degrade(session, lost, now, lost_grace_s) if lost else _advance(session, now, lost_grace_s)
    )


def may_continue(
    session: SessionSnapshot, move: Transition, now: datetime, lost_grace_s: float
) -> bool:
    """Whether another transition may follow immediately, for example after the start of a program
    that has already ended.

    A pending session's next step depends on more than its snapshot."""
    after = replace(
        session, status=move.new, reason=move.reason, detail=move.detail, deadline_at=None
    )
    return move.new is Status.PENDING or reconcile_session(after, now, lost_grace_s) is not None


def _end_at_run_limit(session: SessionSnapshot, now: datetime, lost_grace_s: float) -> Transition:
    """End a session that has reached its run limit, or extend its deadline, because the end of its
    walltime may have been unknown, or earlier, when the deadline was set."""
    limit_s = run_limit_s(session.spec, _ends_in_s(session, now))
    if limit_s is not None and run_limit_reason(session.spec) is Reason.WALLTIME and limit_s > 0:
        moved = _transition(
            session, Event.EXTENDED, lost_grace_s, session.reason, detail=session.detail
        )
        return replace(moved, deadline_s=limit_s)

    reason = run_limit_reason(session.spec)
    event = Event.FAIL if reason is Reason.TIMEOUT else Event.STOP
    return _transition(session, event, lost_grace_s, reason)


def _ends_in_s(session: SessionSnapshot, now: datetime) -> float | None:
    """Seconds until its main kernel's walltime ends, as far as the agent knows."""
    ends_at = _main_kernel(session.kernels).ends_at
    return None if ends_at is None else (ends_at - now).total_seconds()


def _transition(
    session: SessionSnapshot, event: Event, lost_grace_s: float, reason: Reason, **fields: object
) -> Transition:
    new = next_status(session.status, event)
    if event in NEW_ATTEMPT:
        fields["sub_kernels"] = session.spec.size - 1
    if new is Status.TERMINATING or event in NEW_ATTEMPT:
        fields.setdefault("kernel_status", Status.TERMINATING)

    return Transition(
        session.session_id,
        session.status,
        revision=session.revision,
        event=event,
        new=new,
        reason=reason,
        deadline_s=deadline_s(new, session.spec, lost_grace_s),
        **fields,  # type: ignore[arg-type]
    )


def _holds_resources(session: SessionSnapshot) -> bool:
    ended = all(kernel.status in TERMINAL for kernel in session.kernels)
    return session.status in IN_ORDERS and not ended


def _main_kernel(kernels: Sequence[KernelSnapshot]) -> KernelSnapshot:
    return next(kernel for kernel in kernels if kernel.hostname == MAIN)


def _agent_lost(session: SessionSnapshot, lost_grace_s: float) -> Transition | None:
    """The transition of a session with kernels on a LOST agent (``on_lost_agent``).

    None with `wait`, and with `requeue`, where the program runs again once it has been stopped
    because its lease expired. A cluster that may continue without the kernel does so.
    """
    lost = [kernel for kernel in session.kernels if kernel.unreachable]
    if not lost or set(lost) <= set(lost_sub_kernels(session)):
        return None

    detail = _silent((kernel.agent_id for kernel in lost), "ends its kernel when it returns")
    if session.overlap and may_retry(session, Reason.AGENT_LOST):
        return _transition(session, Event.RETRY, lost_grace_s, Reason.AGENT_LOST, detail=detail)

    policy = session.spec.lost_agent_policy
    if session.overlap and policy == "requeue" and may_requeue(session, Reason.AGENT_LOST):
        return _requeue(session, Reason.AGENT_LOST, detail, lost_grace_s)
    if policy != "fail":
        return None

    return _finish(
        session,
        Reason.AGENT_LOST,
        detail=detail,
        failed=True,
        lost_grace_s=lost_grace_s,
        kernel_status=Status.TERMINATING,
    )


def _is_silent(session: SessionSnapshot) -> bool:
    """Whether one of its jobs is no longer reported on, and so may have left the status whose
    deadline passed."""
    is_job = session.status is Status.QUEUED or session.spec.job is not None
    if not is_job or session.status is Status.SCHEDULED:
        return False
    return any(kernel.silent for kernel in session.kernels if kernel.status not in TERMINAL)


def _silent(agents: Iterable[AgentId | None], rest: str) -> str:
    names = ", ".join(sorted({agent or "" for agent in agents}))
    return f"agent {names} does not report, and {rest}"


def _stop_overdue(session: SessionSnapshot) -> Transition:
    """Record once that the stop is late.

    The session ends only when its kernels have ended, no matter who observes it."""
    live = [kernel for kernel in session.kernels if kernel.status not in TERMINAL]
    agents = sorted({kernel.agent_id or "" for kernel in live})
    waits = f"its kernel on agent {', '.join(agents)} is not known to have ended"
    cure = "; ".join(f"`moorage agents forget {agent} --destroyed`" for agent in agents)
    detail = "; ".join(
        filter(None, (session.detail, waits, f"if that node is gone for good: {cure}"))
    )
    reason = session.reason or Reason.STOP_TIMEOUT
    overdue = _transition(session, Event.STOP_OVERDUE, 0, reason, detail=detail, kernel_status=None)

    return replace(overdue, deadline_s=None)


def _degrade(
    session: SessionSnapshot, lost: Sequence[KernelSnapshot], now: datetime, lost_grace_s: float
) -> Transition | None:
    """Continue the session without the lost kernels.

    This is recorded once per loss. The time limit of the run stays the same."""
    detail = describe_losses(session)
    if tells_losses(session.detail, detail):
        return None

    remaining_s = (
        None if session.deadline_at is None else (session.deadline_at - now).total_seconds()
    )
    reason = lost[-1].reason or Reason.KERNEL_GONE
    degraded = _transition(session, Event.DEGRADED, lost_grace_s, reason, detail=detail)
    return replace(degraded, deadline_s=remaining_s)


def ended_without_result(shared: SharedRun) -> bool:
    """Whether the session was stopped or never placed, in which case a session that shares its run
    takes its place."""
    stopped = shared.status is Status.TERMINATED and shared.result is Result.UNDEFINED
    return stopped or shared.status is Status.CANCELLED


def _follow(session: SessionSnapshot, shared: SharedRun, lost_grace_s: float) -> Transition | None:
    """End a session in the same way as the session whose run it shares, unless that session has no
    result."""
    if shared.status not in TERMINAL or ended_without_result(shared):
        return None
    event = Event.FAILED if shared.status is Status.ERROR else Event.ENDED
    detail = "; ".join(filter(None, (f"the run of session {shared.session_id}", shared.detail)))
    return _transition(
        session, event, lost_grace_s, shared.reason, detail=detail, result=shared.result
    )


def _reconcile_pending(
    session: SessionSnapshot, overdue: bool, lost_grace_s: float
) -> Transition | None:
    if session.shared is not None:
        return _follow(session, session.shared, lost_grace_s)

    if session.failed_dependencies and session.spec.dependency_failed == "end":
        event = Event.DEPENDENCY_FAILED
        reason = Reason.DEPENDENCY_FAILED
        return _transition(session, event, lost_grace_s, reason, detail=session.failed_dependencies)

    if session.earlier_lost and session.spec.lost_agent_policy == "fail" and not session.overlap:
        detail = _silent(session.earlier_lost, "an earlier attempt may still be running there")
        return _transition(session, Event.FAIL, lost_grace_s, Reason.AGENT_LOST, detail=detail)

    retrying = session.attempt - session.requeued_from > 1
    if retrying and session.untried_agents < session.spec.agents_needed:
        too_few = "too few agents are" if session.untried_agents else "no other agent is"
        detail = "; ".join(filter(None, (session.detail, f"{too_few} left to try")))
        return _transition(session, Event.FAIL, lost_grace_s, session.reason, detail=detail)

    # Checked last, because the reason for the failed start is more useful than the fact that no
    # time is left for another attempt.
    return (
        _transition(session, Event.EXPIRED, lost_grace_s, Reason.PENDING_TIMEOUT)
        if overdue
        else None
    )


def _advance(session: SessionSnapshot, now: datetime, lost_grace_s: float) -> Transition | None:
    """Advance the session.

    READY needs every kernel. Earlier steps follow the kernel that is furthest ahead, unless a job
    is waiting in its site's queue; kernels that are starting are then ignored."""
    if session.status not in STARTING:
        return None

    live = {kernel.status for kernel in session.kernels if kernel.status not in TERMINAL}
    if live == {Status.RUNNING}:
        ready = _transition(session, Event.READY, lost_grace_s, Reason.NONE)
        return replace(ready, deadline_s=run_limit_s(session.spec, _ends_in_s(session, now)))

    first = Status.QUEUED if Status.QUEUED in live else max(live, key=STATUS_ORDER.index)
    step = Status.CREATING if first is Status.RUNNING else first
    if step is session.status or step not in _STEPS:
        return None

    return _transition(session, _STEPS[step], lost_grace_s, Reason.NONE)


def _kernel_failed(
    session: SessionSnapshot,
    reason: Reason,
    detail: str,
    lost_grace_s: float,
    *,
    final: Event = Event.FAIL,
) -> Transition:
    """Handle a kernel that ended, or a start that timed out, while other kernels may still be
    alive. ``final``: the event if the session is neither requeued nor retried."""
    if _was_shut_down(session, reason):
        return _transition(session, Event.PREEMPT, lost_grace_s, reason, detail=detail)
    if may_requeue(session, reason):
        return _requeue(session, reason, detail, lost_grace_s)

    event = Event.RETRY if may_retry(session, reason) else final
    return _transition(session, event, lost_grace_s, reason, detail=detail)


def _was_shut_down(session: SessionSnapshot, reason: Reason) -> bool:
    """Whether the kernels were stopped with their agent and the program may run again. This costs
    neither a retry nor a start attempt."""
    runs_again = session.spec.type is SessionType.BATCH and session.spec.retries > 0
    return reason is Reason.AGENT_SHUTDOWN and (runs_again or session.status in STARTING)


def may_retry(session: SessionSnapshot, reason: Reason) -> bool:
    """Whether the session may be retried.

    Only a start is retried, only for reasons that may not apply on another agent, and only while
    enough other agents exist (one, or as many as a multi-node cluster needs)."""
    if session.spec.type is SessionType.BATCH and reason in PROGRAM_FAILED:
        return False  # the program ran between two reports, and its end is the session's result

    return (
        session.status in STARTING
        and REASONS[reason].retryable
        and session.attempt - session.requeued_from < session.spec.max_attempts
        and session.other_agents >= session.spec.agents_needed
    )


def may_requeue(session: SessionSnapshot, reason: Reason) -> bool:
    """Whether the session may be requeued.

    A batch program that failed, or is known to have ended with its node, runs again up to
    ``retries`` times, on any agent. Failed starts are counted separately (``may_retry``)."""
    gone = reason in _ENDED_WITH_NODE and not may_retry(session, reason)
    return (
        session.spec.type is SessionType.BATCH
        and session.status in IN_ORDERS
        and (reason in PROGRAM_FAILED or gone)
        and session.requeues < session.spec.retries
    )


def backoff_s(spec: SessionSpec, requeues: int) -> float:
    """Exponential backoff before the next run, in seconds, after ``requeues`` earlier requeues."""
    return min(BACKOFF_MAX_S, spec.retry_backoff_s * 2.0**requeues)


def _requeue(
    session: SessionSnapshot, reason: Reason, detail: str, lost_grace_s: float
) -> Transition:
    backoff = backoff_s(session.spec, session.requeues)
    retry = (
        f"retry {session.requeues + 1} of {session.spec.retries}, not before {backoff:g} s from now"
    )
    detail = f"{detail}; {retry}" if detail else retry
    timeout = session.spec.pending_timeout_s

    return replace(
        _transition(session, Event.REQUEUE, lost_grace_s, reason, detail=detail, backoff_s=backoff),
        # The backoff is not counted toward pending_timeout_s, which limits the wait for the
        # scheduler.
        deadline_s=None if timeout is None else timeout + backoff,
    )


def _all_kernels_ended(session: SessionSnapshot, lost_grace_s: float) -> Transition:
    """Handle a session whose kernels have all ended. In a cluster, main1 determines the reason and
    the result."""
    if _ran_between_reports(session):
        return _transition(session, Event.READY, lost_grace_s, Reason.NONE)

    main = _main_kernel(session.kernels)
    # the cause of the stop is more useful than how its kernels ended
    if session.status is Status.TERMINATING:
        reason = session.reason or main.reason
        detail = session.detail
    else:
        reason = main.reason or Reason.KERNEL_GONE
        detail = main.detail
        if _was_shut_down(session, reason):
            return _transition(
                session, Event.PREEMPT, lost_grace_s, reason, detail=detail, kernel_status=None
            )

        if may_requeue(session, reason):
            return replace(_requeue(session, reason, detail, lost_grace_s), kernel_status=None)

        if may_retry(session, reason):
            return _transition(
                session, Event.RETRY, lost_grace_s, reason, detail=detail, kernel_status=None
            )

    failed = REASONS[reason].failure
    if reason is Reason.EXIT_ZERO and session.spec.type is SessionType.INFERENCE:
        failed = True
        detail = detail or "an inference engine must not exit on its own"

    return _finish(
        session, reason, detail=detail, failed=failed, lost_grace_s=lost_grace_s, kernel_status=None
    )


def _ran_between_reports(session: SessionSnapshot) -> bool:
    """Handle a program that started and ended between two reports. RUNNING is recorded before its
    end."""
    return (
        session.spec.type is SessionType.BATCH
        and session.status in STARTING
        and _main_kernel(session.kernels).reason in PROGRAM_RAN
    )


def _finish(
    session: SessionSnapshot,
    reason: Reason,
    detail: str,
    failed: bool,
    *,
    lost_grace_s: float,
    kernel_status: Status | None,
) -> Transition:
    result = None
    event = Event.FAILED if failed else Event.ENDED
    if session.spec.type is SessionType.BATCH:
        failed = failed or reason is Reason.WALLTIME  # its program was interrupted
        result = Result.FAILED if failed else Result.SUCCESS if reason is Reason.EXIT_ZERO else None
        if reason in (Reason.EXIT_NONZERO, Reason.TASKS_FAILED, Reason.TIMEOUT):
            # the program ran and has a result; ERROR is for sessions that could not run
            event = Event.ENDED

    return _transition(
        session,
        event,
        lost_grace_s,
        reason,
        detail=detail,
        result=result,
        kernel_status=kernel_status,
    )
