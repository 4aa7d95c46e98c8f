"""Sessions whose jobs wait in a site's queue and end at its walltime."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.common.link.messages import Observation
from moorage.common.model.hpc_options import SiteJob
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState, Result, SessionType, Status
from moorage.manager.lifecycle import Event, KernelSnapshot, SessionSnapshot, reconcile_session
from moorage.manager.lifecycle.deadlines import WALLTIME_MARGIN_S, deadline_s, run_limit_s
from moorage.manager.lifecycle.kernels import (
    AgentUpdate,
    StoredKernel,
    kernel_changes,
    next_kernel_status,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
K = KernelId("k")
S = SessionId("s")
MODEL = SessionSpec(engine="llamacpp", model="m", type=SessionType.INFERENCE, walltime_s=3600)
BATCH = SessionSpec(command=["x"], type=SessionType.BATCH, walltime_s=3600, queue_timeout_s=60)


def session(
    status: Status, kernel: Status, spec: SessionSpec = MODEL, **fields: object
) -> SessionSnapshot:
    stored = replace(KernelSnapshot(K, kernel, agent_id=AgentId("hpc-1")), **fields)  # type: ignore[arg-type]
    return SessionSnapshot(
        S, status, revision=1, attempt=1, spec=spec, kernels=(stored,), other_agents=3
    )


@pytest.mark.parametrize(
    ("before", "kernel", "event", "after"),
    [
        (Status.SCHEDULED, Status.QUEUED, Event.QUEUED, Status.QUEUED),
        (Status.PREPARING, Status.QUEUED, Event.QUEUED, Status.QUEUED),
        (Status.QUEUED, Status.CREATING, Event.CREATING, Status.CREATING),
        (Status.QUEUED, Status.RUNNING, Event.READY, Status.RUNNING),
        # A premature report by an agent, and a site that puts a job back into its queue.
        (Status.CREATING, Status.QUEUED, Event.QUEUED, Status.QUEUED),
        (Status.CREATING, Status.PREPARING, Event.PREPARING, Status.PREPARING),
        (Status.QUEUED, Status.PREPARING, Event.PREPARING, Status.PREPARING),
    ],
)
def test_session_follows_its_job_through_the_queue(
    before: Status, kernel: Status, event: Event, after: Status
) -> None:
    move = reconcile_session(session(before, kernel), NOW, 120)
    assert move is not None
    assert (move.event, move.new) == (event, after)


def test_queue_has_its_own_deadline_and_the_start_timeout_counts_after_it() -> None:
    assert deadline_s(Status.QUEUED, BATCH, 120) == 60
    assert deadline_s(Status.QUEUED, MODEL, 120) is None, "its site says how long jobs may wait"
    waiting = session(Status.QUEUED, Status.QUEUED, detail="Priority")
    move = reconcile_session(replace(waiting, deadline_at=NOW), NOW, 120)
    assert move is not None
    assert (move.new, move.reason, move.detail) == (
        Status.TERMINATING,
        Reason.QUEUE_TIMEOUT,
        "Priority",
    )
    loads = reconcile_session(session(Status.QUEUED, Status.CREATING), NOW, 120)
    assert loads is not None
    assert loads.deadline_s == MODEL.start_timeout_s + 30


def test_manager_leaves_the_start_timeout_of_a_job_to_its_agent() -> None:
    """The agent knows how long the site was silent. No job outlives its walltime."""
    job = MODEL.model_copy(update={"job": SiteJob()})
    for status in (Status.PREPARING, Status.CREATING):
        assert deadline_s(status, job, 120) == 3600 + WALLTIME_MARGIN_S
        assert deadline_s(status, job.model_copy(update={"start_timeout_s": 7200.0}), 120) == 7230
        assert deadline_s(status, MODEL, 120) == MODEL.start_timeout_s + 30


@pytest.mark.parametrize("status", [Status.PREPARING, Status.QUEUED, Status.CREATING])
def test_no_deadline_of_a_job_counts_while_nobody_speaks_of_it(status: Status) -> None:
    for spec, silent, waits in (
        (BATCH.model_copy(update={"job": SiteJob()}), True, True),
        (BATCH.model_copy(update={"job": SiteJob()}), False, False),
        (BATCH, True, status is Status.QUEUED),  # a kernel on a node
    ):
        late = replace(session(status, status, spec, silent=silent), deadline_at=NOW)
        assert (reconcile_session(late, NOW, 120) is None) is waits


def test_silence_about_a_job_in_the_queue_is_stored_and_ends() -> None:
    def changes(status: Status, seen: ObservedState, *, is_silent: bool) -> bool:
        stored = StoredKernel(K, S, status, is_silent=is_silent)
        update = AgentUpdate(
            None, "i", stream=1, draining=False, observed={K: Observation(K, S, seen)}
        )  # type: ignore[arg-type]
        return bool(kernel_changes([stored], update))

    for seen, is_silent, changed in (
        (ObservedState.UNKNOWN, False, True),
        (ObservedState.UNKNOWN, True, False),
        (ObservedState.QUEUED, True, True),
        (ObservedState.QUEUED, False, False),
    ):
        assert changes(Status.QUEUED, seen, is_silent=is_silent) is changed

    for status in (Status.SCHEDULED, Status.CREATING, Status.RUNNING):
        assert not changes(status, ObservedState.UNKNOWN, is_silent=False), "it costs no write"


def test_cluster_waits_while_a_job_of_it_waits() -> None:
    first = session(Status.CREATING, Status.RUNNING)
    second = session(Status.CREATING, Status.QUEUED)
    sub = replace(second.kernels[0], hostname="sub1")
    move = reconcile_session(replace(first, kernels=(*first.kernels, sub)), NOW, 120)
    assert move is not None
    assert (move.new, move.deadline_s) == (Status.QUEUED, None)


def test_deadline_of_a_running_session_is_the_end_of_its_walltime() -> None:
    known = session(Status.CREATING, Status.RUNNING, ends_at=NOW + timedelta(seconds=100))
    unknown = session(Status.CREATING, Status.RUNNING)
    for one, left_s in ((known, 100), (unknown, 3600)):
        move = reconcile_session(one, NOW, 120)
        assert move is not None
        assert (move.event, move.deadline_s) == (Event.READY, left_s + WALLTIME_MARGIN_S)
    assert run_limit_s(BATCH.model_copy(update={"timeout_s": 5.0}), 100) == 5


def test_walltime_that_a_site_extended_moves_the_deadline() -> None:
    extended = session(Status.RUNNING, Status.RUNNING, ends_at=NOW + timedelta(seconds=100))
    move = reconcile_session(replace(extended, deadline_at=NOW), NOW, 120)
    assert move is not None
    assert (move.event, move.new, move.deadline_s) == (
        Event.EXTENDED,
        Status.RUNNING,
        100 + WALLTIME_MARGIN_S,
    )
    over = session(
        Status.RUNNING, Status.RUNNING, ends_at=NOW - timedelta(seconds=WALLTIME_MARGIN_S)
    )
    move = reconcile_session(replace(over, deadline_at=NOW), NOW, 120)
    assert move is not None
    assert (move.event, move.reason) == (Event.STOP, Reason.WALLTIME)


def test_end_by_walltime_is_no_error_of_a_replica_and_fails_a_batch_program() -> None:
    for spec, result in ((MODEL, None), (BATCH, Result.FAILED)):
        ended = session(Status.RUNNING, Status.TERMINATED, spec, reason=Reason.WALLTIME)
        move = reconcile_session(ended, NOW, 120)
        assert move is not None
        assert (move.new, move.reason, move.result) == (Status.TERMINATED, Reason.WALLTIME, result)


def test_newest_observation_of_a_start_counts_and_unknown_changes_nothing() -> None:
    def seen(state: ObservedState) -> Observation:
        return Observation(K, S, state)

    assert next_kernel_status(Status.PREPARING, seen(ObservedState.QUEUED)) is Status.QUEUED
    assert next_kernel_status(Status.QUEUED, seen(ObservedState.UNKNOWN)) is Status.QUEUED
    assert next_kernel_status(Status.CREATING, seen(ObservedState.QUEUED)) is Status.QUEUED
    assert next_kernel_status(Status.CREATING, seen(ObservedState.PREPARING)) is Status.PREPARING
    assert next_kernel_status(Status.CREATING, seen(ObservedState.UNKNOWN)) is Status.CREATING
    for started in (Status.RUNNING, Status.TERMINATING):
        for state in (ObservedState.PREPARING, ObservedState.QUEUED, ObservedState.CREATING):
            assert next_kernel_status(started, seen(state)) is started


@pytest.mark.parametrize(
    ("stored", "seen", "changes"),
    [
        ((100.0, 0.0), (100.4, 0.0), False),
        ((100.0, 0.0), (160.0, 0.0), True),
        ((100.0, 0.0), (0.0, 0.0), True),
        ((0.0, 200.0), (0.0, 260.0), True),
        ((0.0, 200.0), (0.0, 0.0), False),
        # A second is a change; less is not.
        ((100.0, 0.0), (101.0, 0.0), True),
        ((0.0, 200.0), (0.0, 201.0), True),
        ((0.0, 200.0), (0.0, 200.4), False),
        ((0.0, 0.0), (0.0, 1.0), True),
    ],
)
def test_new_times_of_a_job_are_a_change(
    stored: tuple[float, float], seen: tuple[float, float], changes: bool
) -> None:
    kernel = StoredKernel(K, S, Status.QUEUED, "", False, *stored)
    observation = Observation(K, S, ObservedState.QUEUED, expected_start=seen[0], ends_at=seen[1])
    update = AgentUpdate(None, "i", stream=1, draining=False, observed={K: observation})  # type: ignore[arg-type]
    assert bool(kernel_changes([kernel], update)) is changes


def test_silence_about_a_job_says_nothing_of_its_times() -> None:
    kernel = StoredKernel(
        K, S, Status.QUEUED, "", expected_start=100.0, ends_at=200.0, is_silent=True
    )
    silent = Observation(K, S, ObservedState.UNKNOWN, ends_at=300.0)
    update = AgentUpdate(None, "i", stream=1, draining=False, observed={K: silent})  # type: ignore[arg-type]
    assert kernel_changes([kernel], update) == []


@pytest.mark.parametrize(
    ("status", "port", "moved"),
    [
        (Status.RUNNING, 7002, True),
        (Status.RUNNING, 7001, False),
        (Status.RUNNING, 1, True),
        (Status.RUNNING, 0, False),  # it is currently unknown
        (Status.TERMINATING, 7002, False),  # no more agents are sent there
    ],
)
def test_new_address_of_a_running_kernel_is_a_change(
    status: Status, port: int, moved: bool
) -> None:
    seen = Observation(K, S, ObservedState.RUNNING, host="node", port=port)
    kernel = StoredKernel(K, S, status, address=("node", 7001))
    update = AgentUpdate(None, "i", stream=1, draining=False, observed={K: seen})  # type: ignore[arg-type]
    assert bool(kernel_changes([kernel], update)) is moved
    assert not kernel_changes([kernel._replace(address=None)], update)
