"""What happens to a session next: the joint rules over its kernels, its deadline and what is asked. Pure.

A session's kernels, taken together, mean something for it however they got there. Each rule gives a step of
the table in ``lifecycle.py``, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from moorage.common.model.cluster import MAIN
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import STARTING, TERMINAL, Result, SessionType, Status
from moorage.manager.lifecycle.transitions import (
    ORDER,
    Event,
    KernelFacts,
    Move,
    SessionFacts,
    after,
    deadline_s,
)

# These give the session a new kernel, and let the old one go.
AGAIN = frozenset({Event.RETRY, Event.REQUEUE, Event.PREEMPT})


def _move(facts: SessionFacts, event: Event, lost_grace_s: float, reason: Reason, **more: object) -> Move:
    new = after(facts.status, event)
    if event in AGAIN:
        more["subs"] = facts.spec.size - 1
    if new is Status.TERMINATING or event in AGAIN:
        more.setdefault("kernels_to", Status.TERMINATING)
    return Move(
        facts.session_id,
        facts.status,
        facts.revision,
        event,
        new,
        reason,
        deadline_s=deadline_s(new, facts.spec, lost_grace_s),
        **more,  # type: ignore[arg-type]
    )


def stop(facts: SessionFacts, actor: str, reason: Reason, lost_grace_s: float) -> Move | None:
    """The move for a stop, which is accepted in every status; None where it is ending or has ended."""
    if facts.status in TERMINAL or facts.status is Status.TERMINATING:
        return None
    return _move(facts, Event.STOP, lost_grace_s, reason, actor=actor)


def preempt(facts: SessionFacts, how: str, cause: str, lost_grace_s: float) -> Move | None:
    """The move that makes room for ``cause`` (a session): ``how`` is to requeue it or to end it. None for one
    that holds nothing any more, or whose end is only to be written down. Its own grace holds either way."""
    ended = all(kernel.status in TERMINAL for kernel in facts.kernels)
    if facts.status not in (*STARTING, Status.RUNNING) or ended:
        return None
    event = Event.STOP if how == "end" else Event.PREEMPT
    words = f"for session {cause}, of higher priority"
    return _move(facts, event, lost_grace_s, Reason.PREEMPTED, detail=words, actor="scheduler")


def drain(facts: SessionFacts, agent_id: str, actor: str, lost_grace_s: float) -> Move | None:
    """The move for what is left on an agent at the deadline of its drain. A batch session that may be run
    again (``retries``) goes back into the queue; all else is stopped, and endpoints make other replicas."""
    if facts.status not in (*STARTING, Status.RUNNING) or all(
        kernel.status in TERMINAL for kernel in facts.kernels
    ):
        return None
    again = facts.spec.type is SessionType.BATCH and facts.spec.retries > 0
    event = Event.PREEMPT if again else Event.STOP
    return _move(
        facts, event, lost_grace_s, Reason.AGENT_DRAINED, detail=f"agent {agent_id} is emptied", actor=actor
    )


def judge(facts: SessionFacts, now: datetime, lost_grace_s: float) -> Move | None:
    """What a session's kernels and deadline mean for it now: the joint rules, first match wins."""
    late = facts.deadline_at is not None and now >= facts.deadline_at
    kernels = facts.kernels
    if facts.status in (Status.PENDING, *TERMINAL):
        return _waiting(facts, late, lost_grace_s) if facts.status is Status.PENDING else None
    if all(k.status in TERMINAL for k in kernels):
        return _ended(facts, lost_grace_s)
    if facts.status is Status.TERMINATING:
        return _give_up(facts, lost_grace_s) if late else None
    main, lost = _main(kernels), _lost(facts)
    if main.status in TERMINAL:
        well = Event.COMPLETED if main.status is Status.TERMINATED else Event.FAIL
        return _failed(facts, main.reason or Reason.KERNEL_GONE, main.detail, lost_grace_s, well)
    if lost and not (facts.status is Status.RUNNING and _may_degrade(facts.spec)):
        return _failed(facts, lost[0].reason or Reason.KERNEL_GONE, _of(lost[0]), lost_grace_s)
    if late:
        if facts.status is Status.RUNNING:
            reason = Reason.TIMEOUT if facts.spec.timeout_s is not None else Reason.MAX_LIFETIME
            return _move(facts, Event.FAIL if reason is Reason.TIMEOUT else Event.STOP, lost_grace_s, reason)
        return _failed(facts, Reason.START_TIMEOUT, f"no kernel was ready in {facts.status}", lost_grace_s)
    return _degrade(facts, lost, now, lost_grace_s) if lost else _advance(facts, lost_grace_s)


def _main(kernels: Sequence[KernelFacts]) -> KernelFacts:
    return next(kernel for kernel in kernels if kernel.hostname == MAIN)


def _lost(facts: SessionFacts) -> list[KernelFacts]:
    """The subs of a cluster that have ended although they should not have. In a batch session one may be done
    before main1 is."""
    done = Reason.EXIT_ZERO if facts.spec.type is SessionType.BATCH else None
    ended = [kernel for kernel in facts.kernels if kernel.status in TERMINAL and kernel.hostname != MAIN]
    return [kernel for kernel in ended if kernel.reason is not done]


def _may_degrade(spec: SessionSpec) -> bool:
    return spec.cluster is not None and spec.cluster.on_kernel_loss == "degrade"


def _of(kernel: KernelFacts) -> str:
    """What is known of the end of a sub."""
    return f"{kernel.hostname}: {kernel.detail or REASONS[kernel.reason].text or 'it is gone'}"


def _degrade(
    facts: SessionFacts, lost: Sequence[KernelFacts], now: datetime, lost_grace_s: float
) -> Move | None:
    """It goes on, and says without whom: once for each that is lost. How long it may run stays as it was."""
    words = f"without {'; without '.join(map(_of, lost))}"
    if words == facts.detail:
        return None
    left = None if facts.deadline_at is None else (facts.deadline_at - now).total_seconds()
    reason = lost[-1].reason or Reason.KERNEL_GONE
    return replace(_move(facts, Event.DEGRADED, lost_grace_s, reason, detail=words), deadline_s=left)


def _waiting(facts: SessionFacts, late: bool, lost_grace_s: float) -> Move | None:
    if facts.broken and facts.spec.dependency_failed == "end":
        cause = Reason.DEPENDENCY_FAILED
        return _move(facts, Event.DEPENDENCY_FAILED, lost_grace_s, cause, detail=facts.broken)
    if late:
        return _move(facts, Event.EXPIRED, lost_grace_s, Reason.PENDING_TIMEOUT)
    if facts.attempt - facts.requeued_from > 1 and facts.untried_agents < facts.spec.agents_needed:
        left = "too few agents are" if facts.untried_agents else "no other agent is"
        words = "; ".join(filter(None, (facts.detail, f"{left} left to try")))
        return _move(facts, Event.FAIL, lost_grace_s, facts.reason, detail=words)
    return None


def _advance(facts: SessionFacts, lost_grace_s: float) -> Move | None:
    live = [ORDER.index(kernel.status) for kernel in facts.kernels if kernel.status not in TERMINAL]
    least, most = ORDER[min(live)], ORDER[max(live)]
    if facts.status in STARTING and least is Status.RUNNING:
        return _move(facts, Event.READY, lost_grace_s, Reason.NONE)
    if facts.status in (Status.SCHEDULED, Status.PREPARING) and most in (Status.CREATING, Status.RUNNING):
        return _move(facts, Event.CREATING, lost_grace_s, Reason.NONE)
    if facts.status is Status.SCHEDULED and most is Status.PREPARING:
        return _move(facts, Event.PREPARING, lost_grace_s, Reason.NONE)
    return None


def _failed(
    facts: SessionFacts, reason: Reason, detail: str, lost_grace_s: float, else_: Event = Event.FAIL
) -> Move:
    """A kernel ended or a start took too long, and something of the session may still be alive."""
    if may_requeue(facts, reason):
        return _requeue(facts, reason, detail, lost_grace_s)
    if may_retry(facts, reason):
        return _move(facts, Event.RETRY, lost_grace_s, reason, detail=detail)
    return _move(facts, else_, lost_grace_s, reason, detail=detail)


def may_retry(facts: SessionFacts, reason: Reason) -> bool:
    """Only a start is retried, only for reasons that another agent may mend, and only if there is one (of a
    multi-node cluster: enough)."""
    if facts.spec.type is SessionType.BATCH and reason in PROGRAM_FAILED:
        return False  # its program ran, faster than anybody saw: that is its result
    return (
        facts.status in STARTING
        and REASONS[reason].retryable
        and facts.attempt - facts.requeued_from < facts.spec.max_attempts
        and facts.other_agents >= facts.spec.agents_needed
    )


# What a batch session's program did, as against what was done to it (a stop, a timeout) or to its node.
PROGRAM_FAILED = frozenset({Reason.EXIT_NONZERO, Reason.OOM, Reason.KILLED})
PROGRAM_RAN = PROGRAM_FAILED | {Reason.EXIT_ZERO}
LONGEST_PAUSE_S = 300.0


def may_requeue(facts: SessionFacts, reason: Reason) -> bool:
    """A program that failed, or that its agent says is gone (the node restarted), is run again as often as
    ``retries`` says, on any agent; starts that failed are counted apart (``may_retry``). What was lost with
    its agent may run still, and is not run a second time beside itself."""
    gone = reason is Reason.KERNEL_GONE and not may_retry(facts, reason)
    return (
        facts.spec.type is SessionType.BATCH
        and facts.status in (*STARTING, Status.RUNNING)
        and (reason in PROGRAM_FAILED or gone)
        and facts.requeues < facts.spec.retries
    )


def pause_s(spec: SessionSpec, requeues: int) -> float:
    """Seconds before the run that follows the first and ``requeues`` others: it doubles."""
    return min(LONGEST_PAUSE_S, spec.retry_backoff_s * 2.0**requeues)


def _requeue(facts: SessionFacts, reason: Reason, detail: str, lost_grace_s: float) -> Move:
    pause = pause_s(facts.spec, facts.requeues)
    nth = f"retry {facts.requeues + 1} of {facts.spec.retries}, not before {pause:g} s from now"
    words = f"{detail}; {nth}" if detail else nth
    wait = facts.spec.pending_timeout_s
    return replace(
        _move(facts, Event.REQUEUE, lost_grace_s, reason, detail=words, pause_s=pause),
        deadline_s=None if wait is None else wait + pause,  # its patience is for the scheduler alone
    )


def _ended(facts: SessionFacts, lost_grace_s: float) -> Move:
    """Every kernel has ended: why, and was that well? Of a cluster main1 tells."""
    if _ran_unseen(facts):
        return _move(facts, Event.READY, lost_grace_s, Reason.NONE)
    main = _main(facts.kernels)
    if facts.status is Status.TERMINATING:  # the reason for stopping explains more than how the stop went
        reason, detail = facts.reason or main.reason, facts.detail
    else:
        reason, detail = main.reason or Reason.KERNEL_GONE, main.detail
        if may_requeue(facts, reason):
            return replace(_requeue(facts, reason, detail, lost_grace_s), kernels_to=None)
        if may_retry(facts, reason):
            return _move(facts, Event.RETRY, lost_grace_s, reason, detail=detail, kernels_to=None)
    bad = REASONS[reason].failure
    if reason is Reason.EXIT_ZERO and facts.spec.type is SessionType.INFERENCE:
        bad, detail = True, detail or "an engine should not end by itself"
    return _finish(facts, reason, detail, bad, lost_grace_s, None)


def _ran_unseen(facts: SessionFacts) -> bool:
    """Its program came and went between two reports. It did run, and that is written down before its end."""
    return (
        facts.spec.type is SessionType.BATCH
        and facts.status in STARTING
        and _main(facts.kernels).reason in PROGRAM_RAN
    )


def _give_up(facts: SessionFacts, lost_grace_s: float) -> Move:
    reason = facts.reason or Reason.STOP_TIMEOUT
    detail = "it did not end in time after a stop: given up, its devices stay fenced until its agent is heard"
    return _finish(facts, reason, detail, REASONS[reason].failure, lost_grace_s, Status.TERMINATED)


def _finish(
    facts: SessionFacts,
    reason: Reason,
    detail: str,
    bad: bool,
    lost_grace_s: float,
    kernels_to: Status | None,
) -> Move:
    result = None
    ran_its_course = bad
    if facts.spec.type is SessionType.BATCH:
        # A batch session that ran and failed has a result; ERROR is for one that could not be run.
        result = Result.FAILED if bad else Result.SUCCESS if reason is Reason.EXIT_ZERO else None
        ran_its_course = bad and reason not in (Reason.EXIT_NONZERO, Reason.TIMEOUT)
    event = Event.FAILED if ran_its_course else Event.ENDED
    return _move(facts, event, lost_grace_s, reason, detail=detail, result=result, kernels_to=kernels_to)
