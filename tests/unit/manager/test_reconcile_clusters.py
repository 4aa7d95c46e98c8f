"""Rules that reconcile a session with the kernels of its cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, Result, Status
from moorage.manager.lifecycle import (
    Event,
    KernelSnapshot,
    SessionSnapshot,
    Transition,
    preempt_session,
    reconcile_session,
)
from moorage.manager.lifecycle.idle_events import idle_event
from moorage.manager.lifecycle.losses import IDLE
from moorage.manager.lifecycle.reconcile import may_continue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
P = Status.PREPARING
S = Status.SCHEDULED
R = Status.RUNNING
T = Status.TERMINATING
DONE = (Status.TERMINATED, Reason.EXIT_ZERO)
DEAD = (Status.ERROR, Reason.OOM)
LOST = (Status.ERROR, Reason.AGENT_LOST)
WELL = (Status.TERMINATED, Reason.AGENT_SHUTDOWN)
KernelState = Status | tuple[Status, Reason]


def cluster_spec(on_loss: str = "end", **fields: object) -> SessionSpec:
    cluster = {"size": 3, "on_kernel_loss": on_loss}
    return SessionSpec.model_validate({"command": ["x"], "cluster": cluster} | fields)


BATCH = cluster_spec()
DEGRADING = cluster_spec("degrade", timeout_s=60)
INTERACTIVE = cluster_spec(type="interactive")
INTERACTIVE_DEGRADING = cluster_spec("degrade", type="interactive")
RETRYING = cluster_spec(retries=1)


def session(
    spec: SessionSpec, status: Status, main: KernelState, *subs: KernelState, **fields: object
) -> SessionSnapshot:
    kernels = []
    for n, state in enumerate((main, *subs)):
        kernel, reason = state if isinstance(state, tuple) else (state, Reason.NONE)
        name = f"sub{n}" if n else "main1"
        kernels.append(KernelSnapshot(KernelId(f"k{n}"), kernel, reason, hostname=name))
    stored = SessionSnapshot(
        SessionId("s"), status, revision=1, attempt=1, spec=spec, kernels=tuple(kernels)
    )
    return replace(stored, **fields)  # type: ignore[arg-type]


TABLE = [
    # starting: the session runs once all kernels do
    (BATCH, S, (R, R, P), Event.CREATING, Reason.NONE),
    (BATCH, S, (S, S, P), Event.PREPARING, Reason.NONE),
    (BATCH, Status.CREATING, (R, R, P), None, Reason.NONE),
    (BATCH, Status.CREATING, (R, R, R), Event.READY, Reason.NONE),
    (INTERACTIVE, Status.CREATING, (R, R, R), Event.READY, Reason.NONE),
    # a sub kernel of a batch session may finish early
    (BATCH, Status.CREATING, (R, DONE, R), Event.READY, Reason.NONE),
    (BATCH, R, (R, DONE, DONE), None, Reason.NONE),
    (INTERACTIVE, R, (R, DONE, R), Event.FAIL, Reason.EXIT_ZERO),
    # a lost kernel ends the session, or degrades it
    (BATCH, R, (R, DEAD, R), Event.FAIL, Reason.OOM),
    (INTERACTIVE, R, (R, R, LOST), Event.FAIL, Reason.AGENT_LOST),
    (DEGRADING, R, (R, DEAD, R), Event.DEGRADED, Reason.OOM),
    (INTERACTIVE_DEGRADING, R, (R, LOST, DEAD), Event.DEGRADED, Reason.OOM),
    # a session that is not RUNNING yet does not degrade
    (DEGRADING, Status.CREATING, (R, DEAD, R), Event.FAIL, Reason.OOM),
    # once main1 has ended, it decides, whatever happened to the sub kernels
    (BATCH, R, (DONE, R, R), Event.COMPLETED, Reason.EXIT_ZERO),
    (BATCH, R, (DONE, DEAD, R), Event.COMPLETED, Reason.EXIT_ZERO),
    (BATCH, S, (DONE, S, S), Event.COMPLETED, Reason.EXIT_ZERO),
    (INTERACTIVE, R, (WELL, R, R), Event.COMPLETED, Reason.AGENT_SHUTDOWN),
    (BATCH, R, (DEAD, R, R), Event.FAIL, Reason.OOM),
    (DEGRADING, R, (DEAD, R, R), Event.FAIL, Reason.OOM),
    (INTERACTIVE_DEGRADING, R, (LOST, R, R), Event.FAIL, Reason.AGENT_LOST),
    # a batch session with retries is requeued with all its kernels
    (RETRYING, R, (R, DEAD, R), Event.REQUEUE, Reason.OOM),
    (RETRYING, R, (DEAD, R, R), Event.REQUEUE, Reason.OOM),
    # a TERMINATING session waits for every kernel
    (BATCH, T, (DONE, T, T), None, Reason.NONE),
    (BATCH, T, (T, DEAD, T), None, Reason.NONE),
]


@pytest.mark.parametrize(("spec", "status", "kernels", "event", "reason"), TABLE)
def test_reconcile_cluster(
    spec: SessionSpec,
    status: Status,
    kernels: tuple[KernelState, ...],
    event: Event | None,
    reason: Reason,
) -> None:
    transition = reconcile_session(session(spec, status, *kernels), NOW, 120)
    assert (transition and transition.event, transition.reason if transition else Reason.NONE) == (
        event,
        reason,
    )
    if transition is not None and transition.new is T:
        assert transition.kernel_status is T, "the remaining kernels are stopped"
    if event is Event.REQUEUE:
        assert transition is not None
        assert (transition.sub_kernels, transition.kernel_status) == (2, T)


@pytest.mark.parametrize(
    ("reason", "main", "result", "status"),
    [
        (Reason.EXIT_ZERO, DONE, Result.SUCCESS, Status.TERMINATED),
        (
            Reason.EXIT_NONZERO,
            (Status.ERROR, Reason.EXIT_NONZERO),
            Result.FAILED,
            Status.TERMINATED,
        ),
        (Reason.OOM, (Status.TERMINATED, Reason.KILLED), Result.FAILED, Status.ERROR),
        (Reason.USER_REQUESTED, (Status.TERMINATED, Reason.KILLED), None, Status.TERMINATED),
    ],
)
def test_result_follows_the_reason_of_the_termination(
    reason: Reason, main: KernelState, result: Result | None, status: Status
) -> None:
    stopped = (Status.TERMINATED, Reason.KILLED)
    transition = reconcile_session(
        session(BATCH, T, main, stopped, stopped, reason=reason), NOW, 120
    )
    assert transition is not None
    assert (transition.result, transition.new, transition.reason) == (result, status, reason)


@pytest.mark.parametrize("sub", [DONE, DEAD, LOST])
def test_main1_determines_the_result_when_all_kernels_ended(sub: KernelState) -> None:
    transition = reconcile_session(session(BATCH, R, DONE, sub, sub), NOW, 120)
    assert transition is not None
    assert (transition.result, transition.reason) == (Result.SUCCESS, Reason.EXIT_ZERO)


def test_program_that_ran_between_reports_is_not_started_again() -> None:
    failed = (Status.TERMINATED, Reason.EXIT_NONZERO)
    found = reconcile_session(
        session(BATCH, Status.CREATING, failed, R, R, other_agents=3), NOW, 120
    )
    assert found is not None
    assert found.event is Event.COMPLETED, "its exit code is the result of the session"


def test_degraded_is_recorded_once_per_loss_and_keeps_the_deadline() -> None:
    running = session(DEGRADING, R, R, DEAD, R, deadline_at=NOW + timedelta(seconds=25))
    first = reconcile_session(running, NOW, 120)
    assert first is not None
    assert (first.deadline_s, first.kernel_status) == (25, None)
    assert first.detail == "without sub1: the program used more memory than it was allocated"
    degraded = replace(running, detail=first.detail, reason=first.reason)
    assert reconcile_session(degraded, NOW, 120) is None
    second = reconcile_session(
        replace(degraded, kernels=session(DEGRADING, R, R, DEAD, LOST).kernels), NOW, 120
    )
    assert second is not None
    assert second.detail.startswith(first.detail)
    assert "sub2" in second.detail
    overdue = reconcile_session(replace(degraded, deadline_at=NOW), NOW, 120)
    assert overdue is not None
    assert (overdue.event, overdue.reason) == (Event.FAIL, Reason.TIMEOUT)


def test_degraded_is_recorded_once_although_the_session_is_warned_as_idle() -> None:
    running = session(INTERACTIVE_DEGRADING, R, R, DEAD, R)
    first = reconcile_session(running, NOW, 120)
    assert first is not None
    degraded = replace(running, detail=first.detail, reason=first.reason)
    warned = idle_event(degraded, f"{IDLE}ends in 5m by criterion traffic", NOW)
    assert warned is not None
    assert warned.detail == f"{first.detail}; idle: ends in 5m by criterion traffic"
    degraded = replace(degraded, detail=warned.detail, reason=warned.reason)
    assert reconcile_session(degraded, NOW, 120) is None
    more = reconcile_session(
        replace(degraded, kernels=session(DEGRADING, R, R, DEAD, LOST).kernels), NOW, 120
    )
    assert more is not None
    assert (more.event, "sub2" in more.detail) == (Event.DEGRADED, True)
    used = idle_event(degraded, "", NOW)
    assert used is not None
    assert (used.detail, used.reason) == (first.detail, first.reason)
    assert reconcile_session(replace(degraded, detail=used.detail), NOW, 120) is None
    assert idle_event(replace(degraded, detail=used.detail), "", NOW) is None
    alone = idle_event(session(INTERACTIVE, R, R, R, R), "idle: ends", NOW)
    assert alone is not None
    assert alone.detail == "idle: ends"


def test_retry_and_preemption_recreate_every_kernel() -> None:
    running = session(
        INTERACTIVE, Status.CREATING, R, (Status.ERROR, Reason.IMAGE_MISSING), P, other_agents=1
    )
    transition = reconcile_session(running, NOW, 120)
    assert transition is not None
    assert (transition.event, transition.sub_kernels, transition.kernel_status) == (
        Event.RETRY,
        2,
        T,
    )
    assert transition.detail.startswith("sub1: ")
    preempted = preempt_session(session(INTERACTIVE, R, R, R, R), "requeue", "other", 120)
    assert preempted is not None
    assert (preempted.event, preempted.sub_kernels) == (Event.PREEMPT, 2)


@pytest.mark.parametrize(("mode", "agents", "retried"), [
    ("multi-node", 3, True), ("multi-node", 2, False), ("single-node", 1, True), ("single-node", 0, False),
])  # fmt: skip
def test_retry_needs_enough_agents_for_every_kernel(mode: str, agents: int, retried: bool) -> None:
    spec = SessionSpec.model_validate({"command": ["x"], "cluster": {"size": 3, "mode": mode}})
    failed = session(spec, S, S, (Status.ERROR, Reason.IMAGE_MISSING), S, other_agents=agents)
    transition = reconcile_session(failed, NOW, 120)
    assert transition is not None
    assert transition.event is (Event.RETRY if retried else Event.FAIL)
    pending = session(spec, Status.PENDING, Status.PENDING, attempt=2, untried_agents=agents)
    transition = reconcile_session(pending, NOW, 120)
    assert (transition is None) is retried
    if transition is not None:
        assert "left to try" in transition.detail


KERNELS = st.one_of(
    st.sampled_from([S, P, Status.CREATING, R, T]),
    st.tuples(st.just(Status.TERMINATED), st.sampled_from([Reason.EXIT_ZERO, Reason.KILLED])),
    st.tuples(st.just(Status.ERROR), st.sampled_from(sorted(set(Reason) - {Reason.NONE}))),
)


@given(
    st.sampled_from([BATCH, DEGRADING, INTERACTIVE, INTERACTIVE_DEGRADING, RETRYING]),
    st.sampled_from([S, P, Status.CREATING, R, T]),
    st.tuples(KERNELS, KERNELS, KERNELS),
)
def test_reconciliation_converges(
    spec: SessionSpec, status: Status, kernels: tuple[KernelState, ...]
) -> None:
    """Without new observations, reconciliation reaches a fixed point: no live session has a dead
    main1, and no session has ended while one of its kernels is alive."""
    now = session(spec, status, *kernels, other_agents=1)
    transitions: list[Transition] = []
    while (
        now.status not in (*TERMINAL, Status.PENDING)
        and (transition := reconcile_session(now, NOW, 120)) is not None
    ):
        transitions.append(transition)
        assert len(transitions) < 6, [transition.event for transition in transitions]
        alive = any(kernel.status not in TERMINAL for kernel in now.kernels)
        assert transition.new not in TERMINAL or not alive
        after = tuple(
            replace(k, status=transition.kernel_status)
            if transition.kernel_status and k.status not in TERMINAL
            else k
            for k in now.kernels
        )
        before = now
        now = replace(
            now,
            status=transition.new,
            reason=transition.reason,
            detail=transition.detail,
            kernels=after,
        )
        follows = reconcile_session(now, NOW, 120) is not None
        assert may_continue(before, transition, NOW, 120) >= follows, (
            "the controller would not look again"
        )

    if now.status is not T and now.status not in TERMINAL:
        assert now.kernels[0].status not in TERMINAL or now.status is Status.PENDING
