"""The table is sound, and the joint rules say what each situation means."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import REASONS, Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, STARTING, TERMINAL, ObservedState, Result, SessionType, Status
from moorage.manager.lifecycle.diagram import document
from moorage.manager.lifecycle.reconcile import judge, preempt, stop
from moorage.manager.lifecycle.transitions import (
    DEADLINES,
    TRANSITIONS,
    Event,
    InvalidTransition,
    KernelFacts,
    SessionFacts,
    after,
    kernel_after,
    kernel_changes,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = NOW - timedelta(seconds=1)
INTERACTIVE = SessionSpec(command=["x"], type=SessionType.INTERACTIVE)
BATCH = SessionSpec(command=["x"], type=SessionType.BATCH, timeout_s=5)
STUBBORN = SessionSpec(command=["x"], type=SessionType.BATCH, retries=2, pending_timeout_s=60)
PATIENT = SessionSpec(command=["x"], depends_on=["prep"], dependency_failed="wait")
INFERENCE = SessionSpec(engine="llamacpp", model="m", type=SessionType.INFERENCE)
K, S = KernelId("k"), SessionId("s")


def facts(status: Status, kernel: Status, spec: SessionSpec = INTERACTIVE, **more: object) -> SessionFacts:
    kernel_more = {k: more.pop(k) for k in ("kernel_reason", "exit_code") if k in more}
    one = KernelFacts(K, kernel, kernel_more.get("kernel_reason", Reason.NONE))  # type: ignore[arg-type]
    return replace(SessionFacts(S, status, 1, 1, spec, (one,)), **more)  # type: ignore[arg-type]


# -- the table --


def test_every_status_can_be_reached_and_can_end() -> None:
    reached, frontier = {Status.PENDING}, [Status.PENDING]
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


def test_terminal_is_for_ever_and_stop_is_accepted_elsewhere() -> None:
    assert not [old for old, _ in TRANSITIONS if old in TERMINAL]
    for status in LIVE - {Status.TERMINATING}:
        assert after(status, Event.STOP) in (Status.CANCELLED, Status.TERMINATING)
    with pytest.raises(InvalidTransition, match="placed in RUNNING"):
        after(Status.RUNNING, Event.PLACED)


@pytest.mark.parametrize("status", sorted(TERMINAL))
@pytest.mark.parametrize("kernel", [Status.RUNNING, *sorted(TERMINAL)])
def test_what_has_ended_is_judged_no_more(status: Status, kernel: Status) -> None:
    assert judge(facts(status, kernel, deadline_at=LATE), NOW, 120) is None


def test_every_live_status_has_a_deadline_or_a_stated_reason_to_wait() -> None:
    assert set(DEADLINES) == LIVE
    endless = {s for s, d in DEADLINES.items() if d.seconds(INTERACTIVE, 120) is None}
    assert endless == {Status.PENDING, Status.RUNNING}
    assert all(DEADLINES[s].words for s in endless)
    assert DEADLINES[Status.RUNNING].seconds(BATCH, 120) == 5


def test_the_drawing_is_current() -> None:
    drawn = Path(__file__).parents[3] / "docs" / "state-machine.md"
    assert drawn.read_text() == document(), "run `make docs`"


def test_every_reason_is_explained() -> None:
    assert set(REASONS) == set(Reason)
    assert all(info.text for reason, info in REASONS.items() if reason)
    assert all(info.next_step for info in REASONS.values() if info.failure)


# -- kernels --


@pytest.mark.parametrize(
    ("status", "seen", "reason", "then"),
    [
        (Status.SCHEDULED, ObservedState.RUNNING, "", Status.RUNNING),
        (Status.SCHEDULED, ObservedState.CREATING, "", Status.CREATING),
        (Status.RUNNING, ObservedState.CREATING, "", Status.RUNNING),
        (Status.RUNNING, ObservedState.UNKNOWN, "", Status.RUNNING),
        (Status.RUNNING, ObservedState.STOPPING, "", Status.RUNNING),
        (Status.TERMINATING, ObservedState.RUNNING, "", Status.TERMINATING),
        (Status.RUNNING, ObservedState.EXITED, "exit-zero", Status.TERMINATED),
        (Status.RUNNING, ObservedState.EXITED, "exit-nonzero", Status.ERROR),
        (Status.RUNNING, ObservedState.EXITED, "agent-shutdown", Status.TERMINATED),
        (Status.TERMINATING, ObservedState.EXITED, "killed", Status.TERMINATED),
        (Status.TERMINATED, ObservedState.RUNNING, "", Status.TERMINATED),
    ],
)
def test_a_kernel_moves_only_forward(status: Status, seen: ObservedState, reason: str, then: Status) -> None:
    assert kernel_after(status, Observation(K, S, seen, reason=Reason(reason))) is then


@pytest.mark.parametrize(
    ("status", "accepted", "gone"),
    [
        (Status.SCHEDULED, None, False),  # its orders may be under way
        (Status.SCHEDULED, frozenset(), False),
        (Status.SCHEDULED, frozenset({K}), True),  # it took the orders and does not have it
        (Status.RUNNING, None, True),  # it had it
        (Status.RUNNING, frozenset(), True),
        (Status.TERMINATING, None, False),
        (Status.TERMINATING, frozenset({K}), False),  # it has not heard of the stop
        (Status.TERMINATING, frozenset(), True),
    ],
)
def test_what_a_report_leaves_out(status: Status, accepted: frozenset[KernelId] | None, gone: bool) -> None:
    changes = kernel_changes([(K, S, status)], {}, accepted)
    assert bool(changes) is gone
    assert all(c.new in TERMINAL for c in changes)


@pytest.mark.parametrize(
    ("status", "seen", "detail", "stored", "changes"),
    [
        (Status.PREPARING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "pulling: 1 of 3 MB", True),
        (Status.PREPARING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "pulling: 2 of 3 MB", False),
        (Status.PREPARING, ObservedState.PREPARING, "", "pulling: 2 of 3 MB", False),
        (Status.CREATING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "", False),  # it came late
        (Status.CREATING, ObservedState.CREATING, "loading", "", True),
        (Status.RUNNING, ObservedState.RUNNING, "anything", None, False),
        (Status.CREATING, ObservedState.UNKNOWN, "it did not answer", "loading", False),
    ],
)
def test_how_far_a_start_is(
    status: Status, seen: ObservedState, detail: str, stored: str | None, changes: bool
) -> None:
    look = {K: Observation(K, S, seen, detail=detail)}
    doing = {} if stored is None else {K: stored}
    found = kernel_changes([(K, S, status)], look, None, doing)
    assert [(c.old, c.new) for c in found] == ([(status, status)] if changes else [])


# -- sessions --

CASES = [
    # now, kernel, spec, more -> event, new status, reason
    ("pending waits", facts(Status.PENDING, Status.PENDING), None),
    (
        "pending too long",
        facts(Status.PENDING, Status.PENDING, deadline_at=LATE),
        (Event.EXPIRED, Status.CANCELLED, "pending-timeout"),
    ),
    (
        "what it waits for ended otherwise",
        facts(Status.PENDING, Status.PENDING, broken="prep ended ERROR"),
        (Event.DEPENDENCY_FAILED, Status.CANCELLED, "dependency-failed"),
    ),
    (
        "what it waits for ended otherwise, and it was told to wait",
        facts(Status.PENDING, Status.PENDING, PATIENT, broken="prep ended ERROR"),
        None,
    ),
    ("nothing seen yet", facts(Status.SCHEDULED, Status.SCHEDULED), None),
    ("fetching", facts(Status.SCHEDULED, Status.PREPARING), (Event.PREPARING, Status.PREPARING, "")),
    ("starting", facts(Status.PREPARING, Status.CREATING), (Event.CREATING, Status.CREATING, "")),
    ("fast start", facts(Status.SCHEDULED, Status.RUNNING), (Event.READY, Status.RUNNING, "")),
    (
        "start failed, nobody else",
        facts(Status.CREATING, Status.ERROR, kernel_reason=Reason.EXIT_NONZERO),
        (Event.FAILED, Status.ERROR, "exit-nonzero"),
    ),
    (
        "start failed, another agent",
        facts(Status.CREATING, Status.ERROR, kernel_reason=Reason.EXIT_NONZERO, other_agents=1),
        (Event.RETRY, Status.PENDING, "exit-nonzero"),
    ),
    (
        "attempts used up",
        facts(Status.CREATING, Status.ERROR, kernel_reason=Reason.EXIT_NONZERO, other_agents=1, attempt=3),
        (Event.FAILED, Status.ERROR, "exit-nonzero"),
    ),
    (
        "another agent will not help",
        facts(Status.CREATING, Status.ERROR, kernel_reason=Reason.OOM, other_agents=1),
        (Event.FAILED, Status.ERROR, "oom"),
    ),
    (
        "orders not taken",
        facts(Status.SCHEDULED, Status.SCHEDULED, deadline_at=LATE, other_agents=1),
        (Event.RETRY, Status.PENDING, "start-timeout"),
    ),
    (
        "start too long, nobody else",
        facts(Status.CREATING, Status.CREATING, deadline_at=LATE),
        (Event.FAIL, Status.TERMINATING, "start-timeout"),
    ),
    (
        "a running kernel fails",
        facts(Status.RUNNING, Status.ERROR, kernel_reason=Reason.KILLED, other_agents=5),
        (Event.FAILED, Status.ERROR, "killed"),
    ),
    (
        "a program failed and may fail again",
        facts(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.EXIT_NONZERO),
        (Event.REQUEUE, Status.PENDING, "exit-nonzero"),
    ),
    (
        "a program failed before it was seen to run: it ran",
        facts(Status.SCHEDULED, Status.ERROR, STUBBORN, kernel_reason=Reason.OOM, attempt=3),
        (Event.READY, Status.RUNNING, ""),
    ),
    (
        "and then it is run again",
        facts(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.OOM, attempt=3),
        (Event.REQUEUE, Status.PENDING, "oom"),
    ),
    (
        "a service that ends at once was never ready",
        facts(Status.SCHEDULED, Status.ERROR, INFERENCE, kernel_reason=Reason.EXIT_NONZERO),
        (Event.FAILED, Status.ERROR, "exit-nonzero"),
    ),
    (
        "a program failed and its retries are used up",
        facts(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.EXIT_NONZERO, requeues=2),
        (Event.ENDED, Status.TERMINATED, "exit-nonzero"),
    ),
    (
        "what became of a program on a lost agent is not known: it may run still",
        facts(Status.RUNNING, Status.ERROR, STUBBORN, kernel_reason=Reason.AGENT_LOST),
        (Event.FAILED, Status.ERROR, "agent-lost"),
    ),
    (
        "a stopped program is not run again",
        facts(Status.TERMINATING, Status.TERMINATED, STUBBORN, reason=Reason.USER_REQUESTED),
        (Event.ENDED, Status.TERMINATED, "user-requested"),
    ),
    (
        "a program that was killed has run: only retries run it again",
        facts(Status.RUNNING, Status.ERROR, BATCH, kernel_reason=Reason.KILLED, other_agents=1),
        (Event.FAILED, Status.ERROR, "killed"),
    ),
    (
        "attempts to start are counted anew for each run",
        facts(
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
        "an engine ends by itself",
        facts(Status.RUNNING, Status.TERMINATED, INFERENCE, kernel_reason=Reason.EXIT_ZERO),
        (Event.FAILED, Status.ERROR, "exit-zero"),
    ),
    (
        "batch too long",
        facts(Status.RUNNING, Status.RUNNING, BATCH, deadline_at=LATE),
        (Event.FAIL, Status.TERMINATING, "timeout"),
    ),
    (
        "a stop goes on too long",
        facts(Status.TERMINATING, Status.TERMINATING, deadline_at=LATE, reason=Reason.USER_REQUESTED),
        (Event.ENDED, Status.TERMINATED, "user-requested"),
    ),
    (
        "a failed start has stopped",
        facts(Status.TERMINATING, Status.TERMINATED, reason=Reason.START_TIMEOUT),
        (Event.FAILED, Status.ERROR, "start-timeout"),
    ),
]


@pytest.mark.parametrize(("given_facts", "then"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_judge(given_facts: SessionFacts, then: tuple[Event, Status, str] | None) -> None:
    move = judge(given_facts, NOW, 120)
    assert (None if move is None else (move.event, move.new, str(move.reason))) == then


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
    move = judge(facts(Status.RUNNING, kernel, BATCH, kernel_reason=reason), NOW, 120)
    assert move is not None
    assert (move.new, move.result) == (status, result)


@pytest.mark.parametrize("reason", [Reason.EXIT_ZERO, Reason.EXIT_NONZERO, Reason.OOM, Reason.KILLED])
@pytest.mark.parametrize("status", sorted(STARTING))
def test_a_program_that_came_and_went_between_two_reports_was_running(status: Status, reason: Reason) -> None:
    kernel = Status.TERMINATED if reason is Reason.EXIT_ZERO else Status.ERROR
    move = judge(facts(status, kernel, BATCH, kernel_reason=reason, other_agents=1), NOW, 120)
    assert move is not None
    assert (move.event, move.new, move.result) == (Event.READY, Status.RUNNING, None)


def test_the_pause_before_a_retry_doubles_and_is_bounded() -> None:
    spec = STUBBORN.model_copy(update={"retries": 20, "retry_backoff_s": 5})
    pauses = []
    for requeues in range(20):
        one = facts(Status.RUNNING, Status.ERROR, spec, kernel_reason=Reason.KILLED, requeues=requeues)
        move = judge(one, NOW, 120)
        assert move is not None
        pauses.append(move.pause_s)
        assert move.deadline_s == 60 + (move.pause_s or 0), "a pause costs nothing of its patience"
        assert f"retry {requeues + 1} of 20" in move.detail
    assert pauses[:7] == [5, 10, 20, 40, 80, 160, 300]
    assert set(pauses[7:]) == {300}


statuses = st.sampled_from(list(Status))
some_facts = st.builds(
    lambda status, kernel, spec, late, others, attempt, reason: facts(
        status, kernel, spec, deadline_at=LATE if late else None, other_agents=others, attempt=attempt,
        kernel_reason=reason if kernel in TERMINAL else Reason.NONE,
    ),
    st.sampled_from(sorted(LIVE)), statuses,
    st.sampled_from([INTERACTIVE, BATCH, STUBBORN, PATIENT, INFERENCE]),
    st.booleans(), st.integers(0, 3), st.integers(1, 4), st.sampled_from(list(Reason)),
)  # fmt: skip


@given(some_facts)
def test_whatever_is_known_the_move_is_in_the_table_and_never_loops(one: SessionFacts) -> None:
    move = judge(one, NOW, 120)
    if move is not None:
        assert TRANSITIONS[one.status, move.event] is move.new
        assert move.new is not one.status
        assert (move.new is Status.PENDING) == (move.event in (Event.RETRY, Event.REQUEUE))
        assert (move.pause_s is not None) == (move.event is Event.REQUEUE)
    elif one.deadline_at is not None:
        pytest.fail("a passed deadline always has a way out")


@given(some_facts)
def test_a_stop_moves_everything_that_is_not_ending(one: SessionFacts) -> None:
    move = stop(one, "me", Reason.USER_REQUESTED, 120)
    assert (move is None) == (one.status in {*TERMINAL, Status.TERMINATING})


@pytest.mark.parametrize("how", ["requeue", "end"])
@given(one=some_facts)
def test_only_what_holds_something_makes_room(how: str, one: SessionFacts) -> None:
    move = preempt(one, how, "other", 120)
    holds = one.status in {*STARTING, Status.RUNNING} and one.kernels[0].status not in TERMINAL
    assert (move is not None) == holds
    if move is not None:
        assert (move.new, move.kernels_to) == (
            Status.TERMINATING if how == "end" else Status.PENDING,
            Status.TERMINATING,
        )
        assert (move.reason, "other" in move.detail) == (Reason.PREEMPTED, True)


def test_observing_the_same_twice_changes_nothing_more() -> None:
    for status, state in product(Status, ObservedState):
        look = Observation(K, S, state, reason=Reason.KILLED)
        once = kernel_after(status, look)
        assert kernel_after(once, look) is once
