"""Sessions that the platform ends or moves: drained agents, earlier attempts and silent sites."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.model.hpc_options import SiteJob
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.manager.lifecycle import (
    Event,
    KernelSnapshot,
    SessionSnapshot,
    drain_session,
    reconcile_session,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = SessionSpec(command=["x"])
RETRIED = SessionSpec(command=["x"], retries=1)
CHAT = SessionSpec(command=["x"], type=SessionType.INTERACTIVE)


def session(
    status: Status,
    kernel: Status,
    spec: SessionSpec = JOB,
    *,
    silent: bool = False,
    **fields: object,
) -> SessionSnapshot:
    stored = KernelSnapshot(KernelId("k"), kernel, agent_id=AgentId("node-1"), silent=silent)
    made = SessionSnapshot(
        SessionId("s"), status, revision=1, attempt=1, spec=spec, kernels=(stored,)
    )
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "event"),
    [
        (session(Status.RUNNING, Status.RUNNING), Event.STOP),
        (session(Status.RUNNING, Status.RUNNING, RETRIED), Event.PREEMPT),
        (session(Status.CREATING, Status.CREATING, RETRIED), Event.PREEMPT),
        (session(Status.RUNNING, Status.RUNNING, CHAT), Event.STOP),
        # It holds no resources there, or has nothing that could be stopped.
        (session(Status.PENDING, Status.PENDING), None),
        (session(Status.TERMINATING, Status.TERMINATING), None),
        (session(Status.RUNNING, Status.TERMINATED), None),
    ],
)
def test_a_drained_agent_ends_or_moves_what_it_still_has(
    one: SessionSnapshot, event: Event | None
) -> None:
    move = drain_session(one, "node-1", "ann", 120)
    if event is None:
        assert move is None
        return
    assert move is not None
    assert (move.event, move.reason, move.actor) == (event, Reason.AGENT_DRAINED, "ann")
    assert move.detail == "agent node-1 was drained"


@pytest.mark.parametrize(
    ("spec", "overlap", "ends"), [(JOB, False, True), (JOB, True, False), (RETRIED, False, False)]
)
def test_an_earlier_attempt_on_a_lost_agent_ends_a_session_unless_both_may_run(
    spec: SessionSpec, overlap: bool, ends: bool
) -> None:
    waiting = session(
        Status.PENDING, Status.PENDING, spec, attempt=2, requeued_from=1, overlap=overlap,
        earlier_lost=(AgentId("node-9"),), other_agents=5, untried_agents=5,
    )  # fmt: skip
    move = reconcile_session(waiting, NOW, 120)
    assert (move is not None and move.reason is Reason.AGENT_LOST) is ends


@pytest.mark.parametrize(
    ("status", "silent", "fails"),
    [
        (Status.CREATING, False, True),
        (Status.CREATING, True, False),
        (Status.QUEUED, True, False),
        # Its site does not know it yet, so the site could not report anything.
        (Status.SCHEDULED, True, True),
    ],
)
def test_a_passed_deadline_of_a_job_waits_for_a_silent_site(
    status: Status, silent: bool, fails: bool
) -> None:
    spec = JOB.model_copy(update={"job": SiteJob()})
    late = session(status, status, spec, silent=silent, deadline_at=NOW - timedelta(seconds=1))
    move = reconcile_session(late, NOW, 120)
    assert (move is not None and move.event in (Event.FAIL, Event.RETRY)) is fails
