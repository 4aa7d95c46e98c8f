"""Reasons and details that a session takes from its kernels, and which sessions of lost agents
change state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import TERMINAL, SessionType, Status
from moorage.manager.lifecycle import (
    Event,
    KernelSnapshot,
    SessionSnapshot,
    Transition,
    reconcile_session,
    stop_session,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
R = Status.RUNNING
T = Status.TERMINATING
ERROR = Status.ERROR
JOB = SessionSpec(command=["x"])
RETRIED = SessionSpec(command=["x"], retries=1)
CHAT = SessionSpec(command=["x"], type=SessionType.INTERACTIVE)
CLUSTER = SessionSpec.model_validate({"command": ["x"], "cluster": {"size": 3}})
DEGRADING = SessionSpec.model_validate(
    {"command": ["x"], "cluster": {"size": 3, "on_kernel_loss": "degrade"}}
)


def kernel(
    status: Status, reason: Reason = Reason.NONE, name: str = "main1", **fields: object
) -> KernelSnapshot:
    made = KernelSnapshot(KernelId(name), status, reason, hostname=name, agent_id=AgentId("node-1"))
    return replace(made, **fields)  # type: ignore[arg-type]


def session(
    spec: SessionSpec, status: Status, *kernels: KernelSnapshot, **fields: object
) -> SessionSnapshot:
    made = SessionSnapshot(
        SessionId("s"), status, revision=1, attempt=1, spec=spec, kernels=kernels
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def moved(one: SessionSnapshot) -> Transition | None:
    return reconcile_session(one, NOW, 120)


@pytest.mark.parametrize("status", list(Status))
def test_what_ends_or_has_ended_is_not_stopped(status: Status) -> None:
    made = stop_session(session(JOB, status, kernel(status)), "ann", Reason.USER_REQUESTED, 120)
    assert (made is None) is (status in {*TERMINAL, T})
    assert made is None or (made.event, made.actor) == (Event.STOP, "ann")


@pytest.mark.parametrize("name", ["main1", "sub1"])
@pytest.mark.parametrize(
    ("reason", "told"), [(Reason.NONE, Reason.KERNEL_GONE), (Reason.OOM, Reason.OOM)]
)
def test_a_kernel_that_ended_says_why_or_is_gone(name: str, reason: Reason, told: Reason) -> None:
    """While others in its cluster run."""
    names = ["main1", "sub1", "sub2"]
    kernels = [kernel(ERROR, reason, one) if one == name else kernel(R, name=one) for one in names]
    made = moved(session(CLUSTER, R, *kernels))
    assert made is not None
    assert (made.event, made.reason) == (Event.FAIL, told)


def test_a_cluster_that_may_continue_is_not_ended_for_its_lost_agents() -> None:
    gone = kernel(R, name="sub1", unreachable=True)
    one = session(DEGRADING, R, kernel(R), gone, kernel(R, name="sub2"))
    made = moved(one)
    assert made is not None
    assert made.event is Event.DEGRADED
    main_gone = session(DEGRADING, R, kernel(R, unreachable=True), gone, kernel(R, name="sub2"))
    made = moved(main_gone)
    assert made is not None
    assert (made.event, made.reason) == (Event.FAILED, Reason.AGENT_LOST)


@pytest.mark.parametrize(
    ("fields", "requeues", "overlap", "event"),
    [
        ({"retries": 1}, 0, True, Event.REQUEUE),
        ({"retries": 1}, 1, True, None),  # it has already been requeued as often as allowed
        ({"retries": 1}, 0, False, None),  # only once its lease has ended it
        ({"retries": 1, "on_lost_agent": "wait"}, 0, True, None),
        ({"retries": 1, "on_lost_agent": "fail"}, 0, True, Event.FAILED),
        ({}, 0, True, Event.FAILED),
    ],
)
def test_a_lost_agent_requeues_what_may_run_twice(
    fields: dict[str, object], requeues: int, overlap: bool, event: Event | None
) -> None:
    spec = SessionSpec.model_validate({"command": ["x"]} | fields)
    made = moved(session(spec, R, kernel(R, unreachable=True), requeues=requeues, overlap=overlap))
    assert (made and made.event) == event
    assert made is None or made.reason is Reason.AGENT_LOST


def test_a_late_stop_names_each_agent_once_and_needs_none() -> None:
    kernels = (kernel(T), kernel(T, name="sub1"), kernel(T, name="sub2", agent_id=None))
    made = moved(session(CLUSTER, T, *kernels, deadline_at=NOW - timedelta(seconds=1)))
    assert made is not None
    assert made.event is Event.STOP_OVERDUE
    assert made.detail.count("agent , node-1 is not known") == 1


@pytest.mark.parametrize(
    ("spec", "event"), [(JOB, Event.COMPLETED), (RETRIED, Event.PREEMPT), (CHAT, Event.COMPLETED)]
)
def test_a_stopped_agent_requeues_only_what_may_run_again(spec: SessionSpec, event: Event) -> None:
    """Checked while a kernel in the session's cluster still runs, and once all have ended."""
    shut = Status.TERMINATED, Reason.AGENT_SHUTDOWN
    clustered = spec.model_copy(update={"cluster": CLUSTER.cluster})
    made = moved(session(clustered, R, kernel(*shut), kernel(R, name="sub1")))
    assert made is not None
    assert (made.event, made.reason) == (event, Reason.AGENT_SHUTDOWN)
    made = moved(session(spec, R, kernel(*shut)))
    assert made is not None
    assert (made.event is Event.PREEMPT) is (event is Event.PREEMPT)


@pytest.mark.parametrize("detail", ["", "killed"])
def test_a_requeue_tells_when_and_what_was_before(detail: str) -> None:
    made = moved(session(RETRIED, R, kernel(ERROR, Reason.OOM, detail=detail)))
    assert made is not None
    told = "retry 1 of 1, not before 5 s from now"
    assert made.detail == (f"{detail}; {told}" if detail else told)


@pytest.mark.parametrize(
    ("stopped_for", "told"),
    [(Reason.USER_REQUESTED, Reason.USER_REQUESTED), (Reason.NONE, Reason.OOM)],
)
def test_why_it_was_stopped_explains_more_than_how_its_kernels_ended(
    stopped_for: Reason, told: Reason
) -> None:
    one = session(
        CHAT, T, kernel(ERROR, Reason.OOM, detail="killed"), reason=stopped_for, detail="as asked"
    )
    made = moved(one)
    assert made is not None
    assert (made.reason, made.detail) == (told, "as asked")
