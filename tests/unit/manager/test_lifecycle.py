"""Soundness of the transition table, and the rules that reconcile a session with its kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, STARTING, TERMINAL, Result, SessionType, Status
from moorage.manager.lifecycle import (
    Event,
    KernelSnapshot,
    SessionSnapshot,
    preempt_session,
    reconcile_session,
    stop_session,
)
from moorage.manager.lifecycle.deadlines import DEADLINES
from moorage.manager.lifecycle.diagram import document
from moorage.manager.lifecycle.reconcile import may_continue
from moorage.manager.lifecycle.transitions import TRANSITIONS, InvalidTransition, next_status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PAST = NOW - timedelta(seconds=1)
INTERACTIVE = SessionSpec(command=["x"], type=SessionType.INTERACTIVE)
BATCH = SessionSpec(command=["x"], type=SessionType.BATCH, timeout_s=5)
STUBBORN = SessionSpec(command=["x"], type=SessionType.BATCH, retries=2, pending_timeout_s=60)
WAITING = SessionSpec(command=["x"], type=SessionType.BATCH, retries=2, on_lost_agent="wait")
PATIENT = SessionSpec(command=["x"], depends_on=["prep"], dependency_failed="wait")
INFERENCE = SessionSpec(engine="llamacpp", model="m", type=SessionType.INFERENCE)
K = KernelId("k")
S = SessionId("s")


def session(
    status: Status,
    kernel: Status,
    spec: SessionSpec = INTERACTIVE,
    *,
    kernel_reason: Reason = Reason.NONE,
    unreachable: bool = False,
    **fields: object,
) -> SessionSnapshot:
    stored = KernelSnapshot(
        K, kernel, kernel_reason, agent_id=AgentId("node-1"), unreachable=unreachable
    )
    return replace(
        SessionSnapshot(S, status, revision=1, attempt=1, spec=spec, kernels=(stored,)), **fields
    )  # type: ignore[arg-type]


# -- transition table --


def test_every_status_is_reachable_and_leads_to_a_terminal_one() -> None:
    reached = {Status.PENDING}
    frontier = [Status.PENDING]
    while frontier:
        status = frontier.pop()
        for (old, _), new in TRANSITIONS.items():
            if old is status and new not in reached:
                reached.add(new)
                frontier.append(new)

    assert reached == set(Status)
    ends = set(TERMINAL)
    while grown := {old for (old, _), new in TRANSITIONS.items() if new in ends} - ends:
        ends |= grown

    assert ends == set(Status)


def test_terminal_statuses_are_final_and_all_others_accept_a_stop() -> None:
    assert not [old for old, _ in TRANSITIONS if old in TERMINAL]
    for status in LIVE - {Status.TERMINATING}:
        assert next_status(status, Event.STOP) in (Status.CANCELLED, Status.TERMINATING)
    with pytest.raises(InvalidTransition, match="placed in RUNNING"):
        next_status(Status.RUNNING, Event.PLACED)


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("kernel", [Status.RUNNING, *sorted(TERMINAL)])
def test_terminal_sessions_are_not_reconciled(status: Status, kernel: Status) -> None:
    assert reconcile_session(session(status, kernel, deadline_at=PAST), NOW, 120) is None


def test_every_live_status_has_a_deadline_or_states_why_not() -> None:
    assert set(DEADLINES) == LIVE
    unlimited = {s for s, d in DEADLINES.items() if d.seconds(INTERACTIVE, 120) is None}
    assert unlimited == {Status.PENDING, Status.QUEUED, Status.RUNNING}
    assert all(DEADLINES[s].description for s in unlimited)
    assert DEADLINES[Status.RUNNING].seconds(BATCH, 120) == 5


def test_the_page_of_the_states_has_every_transition_deadline_and_reason() -> None:
    page = "\n".join(document())
    for (old, event), new in TRANSITIONS.items():
        assert re.search(rf"^    {old} --> {new}: .*\b{event}\b", page, re.MULTILINE)
    assert all(f"| {status} | {DEADLINES[status].description} |" in page for status in LIVE)
    assert all(
        f"| `{reason}` | {info.text} |" in page for reason, info in REASONS.items() if reason
    )


def test_every_reason_has_a_text_and_every_failure_a_next_step() -> None:
    assert set(REASONS) == set(Reason)
    assert all(info.text for reason, info in REASONS.items() if reason)
    assert all(info.next_step for info in REASONS.values() if info.failure)


# -- sessions --

CASES = [
    # name, stored session -> event, new status, reason
    ("pending, no deadline", session(Status.PENDING, Status.PENDING), None),
    (
        "pending timeout",
        session(Status.PENDING, Status.PENDING, deadline_at=PAST),
        (Event.EXPIRED, Status.CANCELLED, "pending-timeout"),
    ),
    (
        "no other agent to try, and pending timeout at once",
        session(
            Status.PENDING, Status.PENDING, attempt=2, reason=Reason.IMAGE_MISSING, deadline_at=PAST
        ),
        (Event.FAIL, Status.ERROR, "image-missing"),
    ),
    (
        "another agent to try, and pending timeout",
        session(
            Status.PENDING,
            Status.PENDING,
            attempt=2,
            reason=Reason.IMAGE_MISSING,
            deadline_at=PAST,
            untried_agents=1,
        ),
        (Event.EXPIRED, Status.CANCELLED, "pending-timeout"),
    ),
    (
        "failed dependency",
        session(Status.PENDING, Status.PENDING, failed_dependencies="prep ended ERROR"),
        (Event.DEPENDENCY_FAILED, Status.CANCELLED, "dependency-failed"),
    ),
    (
        "failed dependency, dependency_failed=wait",
        session(Status.PENDING, Status.PENDING, PATIENT, failed_dependencies="prep ended ERROR"),
        None,
    ),
    ("no report yet", session(Status.SCHEDULED, Status.SCHEDULED), None),
    (
        "preparing",
        session(Status.SCHEDULED, Status.PREPARING),
        (Event.PREPARING, Status.PREPARING, ""),
    ),
    ("creating", session(Status.PREPARING, Status.CREATING), (Event.CREATING, Status.CREATING, "")),
    ("fast start", session(Status.SCHEDULED, Status.RUNNING), (Event.READY, Status.RUNNING, "")),
    (
        "start failed, no other agent",
        session(Status.CREATING, Status.ERROR, kernel_reason=Reason.EXIT_NONZERO),
        (Event.FAILED, Status.ERROR, "exit-nonzero"),
    ),
    (
        "start failed, another agent left",
        session(Status.CREATING, Status.ERROR, kernel_reason=Reason.EXIT_NONZERO, other_agents=1),
        (Event.RETRY, Status.PENDING, "exit-nonzero"),
    ),
    (
        "attempts used up",
        session(
            Status.CREATING,
            Status.ERROR,
            kernel_reason=Reason.EXIT_NONZERO,
            other_agents=1,
            attempt=3,
        ),
        (Event.FAILED, Status.ERROR, "exit-nonzero"),
    ),
    (
        "start failed for a reason that every agent has",
        session(Status.CREATING, Status.ERROR, kernel_reason=Reason.OOM, other_agents=1),
        (Event.FAILED, Status.ERROR, "oom"),
    ),
    (
        "orders not accepted in time",
        session(Status.SCHEDULED, Status.SCHEDULED, deadline_at=PAST, other_agents=1),
        (Event.RETRY, Status.PENDING, "start-timeout"),
    ),
    (
        "start timeout, no other agent",
        session(Status.CREATING, Status.CREATING, deadline_at=PAST),
        (Event.FAIL, Status.TERMINATING, "start-timeout"),
    ),
    (
        "running kernel failed",
        session(Status.RUNNING, Status.ERROR, kernel_reason=Reason.KILLED, other_agents=5),
        (Event.FAILED, Status.ERROR, "killed"),
    ),
    (
        "batch program failed, retries left",
        session(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.EXIT_NONZERO),
        (Event.REQUEUE, Status.PENDING, "exit-nonzero"),
    ),
    (
        "batch program failed between two reports: first RUNNING",
        session(Status.SCHEDULED, Status.ERROR, STUBBORN, kernel_reason=Reason.OOM, attempt=3),
        (Event.READY, Status.RUNNING, ""),
    ),
    (
        "then requeued",
        session(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.OOM, attempt=3),
        (Event.REQUEUE, Status.PENDING, "oom"),
    ),
    (
        "engine that exits at once was never ready",
        session(Status.SCHEDULED, Status.ERROR, INFERENCE, kernel_reason=Reason.EXIT_NONZERO),
        (Event.FAILED, Status.ERROR, "exit-nonzero"),
    ),
    (
        "batch program failed, no retries left",
        session(
            Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.EXIT_NONZERO, requeues=2
        ),
        (Event.ENDED, Status.TERMINATED, "exit-nonzero"),
    ),
    (
        "agent lost: its program may still run, and ends by its lease",
        session(Status.RUNNING, Status.RUNNING, STUBBORN, unreachable=True),
        None,
    ),
    (
        "its lease has ended it",
        session(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.LEASE_EXPIRED),
        (Event.REQUEUE, Status.PENDING, "lease-expired"),
    ),
    (
        "its node was declared destroyed",
        session(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.AGENT_LOST),
        (Event.REQUEUE, Status.PENDING, "agent-lost"),
    ),
    (
        "agent lost, without retries",
        session(Status.RUNNING, Status.RUNNING, BATCH, unreachable=True),
        (Event.FAILED, Status.ERROR, "agent-lost"),
    ),
    (
        "agent lost, on_lost_agent=wait",
        session(Status.RUNNING, Status.RUNNING, WAITING, unreachable=True),
        None,
    ),
    (
        "agent lost during the start: no second start beside the first",
        session(Status.CREATING, Status.CREATING, other_agents=2, unreachable=True),
        (Event.FAILED, Status.ERROR, "agent-lost"),
    ),
    (
        "agent lost during the start, overlap allowed",
        session(Status.CREATING, Status.CREATING, other_agents=2, unreachable=True, overlap=True),
        (Event.RETRY, Status.PENDING, "agent-lost"),
    ),
    (
        "agent lost while running, overlap allowed",
        session(Status.RUNNING, Status.RUNNING, STUBBORN, unreachable=True, overlap=True),
        (Event.REQUEUE, Status.PENDING, "agent-lost"),
    ),
    (
        "stopped, then agent lost",
        session(Status.TERMINATING, Status.TERMINATING, unreachable=True),
        None,
    ),
    (
        "earlier attempt on a lost agent",
        session(
            Status.PENDING,
            Status.PENDING,
            BATCH,
            attempt=2,
            requeued_from=1,
            earlier_lost=("node-1",),
        ),
        (Event.FAIL, Status.ERROR, "agent-lost"),
    ),
    (
        "earlier attempt on a lost agent, with a lease",
        session(
            Status.PENDING,
            Status.PENDING,
            STUBBORN,
            attempt=2,
            requeued_from=1,
            earlier_lost=("n",),
        ),
        None,
    ),
    (
        "kernels were stopped with the agent: no retry is used",
        session(
            Status.RUNNING,
            Status.TERMINATED,
            STUBBORN,
            kernel_reason=Reason.AGENT_SHUTDOWN,
            requeues=2,
        ),
        (Event.PREEMPT, Status.PENDING, "agent-shutdown"),
    ),
    (
        "start was stopped with the agent: no attempt is used",
        session(Status.CREATING, Status.TERMINATED, kernel_reason=Reason.AGENT_SHUTDOWN, attempt=3),
        (Event.PREEMPT, Status.PENDING, "agent-shutdown"),
    ),
    (
        "stopped program is not requeued",
        session(Status.TERMINATING, Status.TERMINATED, STUBBORN, reason=Reason.USER_REQUESTED),
        (Event.ENDED, Status.TERMINATED, "user-requested"),
    ),
    (
        "killed program without retries is not retried",
        session(Status.RUNNING, Status.ERROR, BATCH, kernel_reason=Reason.KILLED, other_agents=1),
        (Event.FAILED, Status.ERROR, "killed"),
    ),
    (
        "start attempts are counted per run",
        session(
            Status.CREATING,
            Status.ERROR,
            STUBBORN,
            kernel_reason=Reason.PORT_TAKEN,
            other_agents=1,
            attempt=5,
            requeued_from=3,
            requeues=2,
        ),
        (Event.RETRY, Status.PENDING, "port-taken"),
    ),
    (
        "engine exits by itself",
        session(Status.RUNNING, Status.TERMINATED, INFERENCE, kernel_reason=Reason.EXIT_ZERO),
        (Event.FAILED, Status.ERROR, "exit-zero"),
    ),
    (
        "batch timeout",
        session(Status.RUNNING, Status.RUNNING, BATCH, deadline_at=PAST),
        (Event.FAIL, Status.TERMINATING, "timeout"),
    ),
    (
        "stop timeout: it ends only with its kernel",
        session(
            Status.TERMINATING, Status.TERMINATING, deadline_at=PAST, reason=Reason.USER_REQUESTED
        ),
        (Event.STOP_OVERDUE, Status.TERMINATING, "user-requested"),
    ),
    (
        "failed start has been stopped",
        session(Status.TERMINATING, Status.TERMINATED, reason=Reason.START_TIMEOUT),
        (Event.FAILED, Status.ERROR, "start-timeout"),
    ),
]


@pytest.mark.parametrize(("given", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_reconcile_session(
    given: SessionSnapshot, expected: tuple[Event, Status, str] | None
) -> None:
    transition = reconcile_session(given, NOW, 120)
    assert (
        None if transition is None else (transition.event, transition.new, str(transition.reason))
    ) == expected


@pytest.mark.parametrize(
    ("reason", "status", "result"),
    [
        (Reason.EXIT_ZERO, Status.TERMINATED, Result.SUCCESS),
        (Reason.EXIT_NONZERO, Status.TERMINATED, Result.FAILED),
        (Reason.OOM, Status.ERROR, Result.FAILED),
        (Reason.AGENT_SHUTDOWN, Status.TERMINATED, None),
    ],
)
def test_batch_results(reason: Reason, status: Status, result: Result | None) -> None:
    kernel = Status.TERMINATED if reason is Reason.EXIT_ZERO else Status.ERROR
    transition = reconcile_session(
        session(Status.RUNNING, kernel, BATCH, kernel_reason=reason), NOW, 120
    )
    assert transition is not None
    assert (transition.new, transition.result) == (status, result)


@pytest.mark.parametrize(
    "reason", [Reason.EXIT_ZERO, Reason.EXIT_NONZERO, Reason.OOM, Reason.KILLED]
)
@pytest.mark.parametrize("status", sorted(STARTING))
def test_program_that_ended_between_two_reports_is_recorded_as_running(
    status: Status, reason: Reason
) -> None:
    kernel = Status.TERMINATED if reason is Reason.EXIT_ZERO else Status.ERROR
    before = session(status, kernel, BATCH, kernel_reason=reason, other_agents=1)
    transition = reconcile_session(before, NOW, 120)
    assert transition is not None
    assert (transition.event, transition.new, transition.result) == (
        Event.READY,
        Status.RUNNING,
        None,
    )
    assert may_continue(before, transition, NOW, 120), "its end is still to be recorded"


statuses = st.sampled_from(list(Status))
snapshots = st.builds(
    lambda status, kernel, spec, overdue, others, attempt, reason, lost, overlap: session(
        status, kernel, spec, deadline_at=PAST if overdue else None, other_agents=others, attempt=attempt,
        kernel_reason=reason if kernel in TERMINAL else Reason.NONE,
        unreachable=lost and kernel not in TERMINAL, overlap=overlap,
    ),
    st.sampled_from(sorted(LIVE)), statuses,
    st.sampled_from([INTERACTIVE, BATCH, STUBBORN, WAITING, PATIENT, INFERENCE]),
    st.booleans(), st.integers(0, 3), st.integers(1, 4), st.sampled_from(list(Reason)),
    st.booleans(), st.booleans(),
)  # fmt: skip


@given(snapshots)
def test_any_transition_is_in_the_table_and_changes_the_status(one: SessionSnapshot) -> None:
    transition = reconcile_session(one, NOW, 120)
    if transition is not None:
        assert TRANSITIONS[one.status, transition.event] is transition.new
        assert (transition.new is one.status) == (transition.event is Event.STOP_OVERDUE)
        returns = transition.event in (Event.RETRY, Event.REQUEUE, Event.PREEMPT)
        assert (transition.new is Status.PENDING) == returns
        assert transition.kernel_status not in TERMINAL, "a kernel has ended when that is known"
        assert (transition.backoff_s is not None) == (transition.event is Event.REQUEUE)
    elif one.deadline_at is not None:
        pytest.fail("a deadline that has passed must cause a transition")


@given(snapshots)
def test_stop_is_accepted_unless_ending_or_ended(one: SessionSnapshot) -> None:
    transition = stop_session(one, "me", Reason.USER_REQUESTED, 120)
    assert (transition is None) == (one.status in {*TERMINAL, Status.TERMINATING})


@pytest.mark.parametrize("mode", ["requeue", "end"])
@given(one=snapshots)
def test_only_sessions_that_hold_resources_are_preempted(mode: str, one: SessionSnapshot) -> None:
    transition = preempt_session(one, mode, "other", 120)
    holds = one.status in {*STARTING, Status.RUNNING} and one.kernels[0].status not in TERMINAL
    assert (transition is not None) == holds
    if transition is not None:
        assert (transition.new, transition.kernel_status) == (
            Status.TERMINATING if mode == "end" else Status.PENDING,
            Status.TERMINATING,
        )
        assert (transition.reason, "other" in transition.detail) == (Reason.PREEMPTED, True)
