"""What the kernels of a cluster mean for their session: the joint rules, as a table."""

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
from moorage.manager.lifecycle.reconcile import judge, preempt
from moorage.manager.lifecycle.transitions import Event, KernelFacts, Move, SessionFacts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
P, S, R, T = Status.PREPARING, Status.SCHEDULED, Status.RUNNING, Status.TERMINATING
DONE, DEAD = (Status.TERMINATED, Reason.EXIT_ZERO), (Status.ERROR, Reason.OOM)
LOST, WELL = (Status.ERROR, Reason.AGENT_LOST), (Status.TERMINATED, Reason.AGENT_SHUTDOWN)
Seen = Status | tuple[Status, Reason]


def spec(on_loss: str = "end", **more: object) -> SessionSpec:
    cluster = {"size": 3, "on_kernel_loss": on_loss}
    return SessionSpec.model_validate({"command": ["x"], "cluster": cluster} | more)


BATCH, DEGRADING = spec(), spec("degrade", timeout_s=60)
WORK, WORK_ON = spec(type="interactive"), spec("degrade", type="interactive")
AGAIN = spec(retries=1)


def facts(asked: SessionSpec, status: Status, main: Seen, *subs: Seen, **more: object) -> SessionFacts:
    kernels = []
    for n, seen in enumerate((main, *subs)):
        kernel, reason = seen if isinstance(seen, tuple) else (seen, Reason.NONE)
        name = f"sub{n}" if n else "main1"
        kernels.append(KernelFacts(KernelId(f"k{n}"), kernel, reason, hostname=name))
    made = SessionFacts(SessionId("s"), status, 1, 1, asked, tuple(kernels))
    return replace(made, **more)  # type: ignore[arg-type]


TABLE = [
    # starting: only all together run
    (BATCH, S, (R, R, P), Event.CREATING, Reason.NONE),
    (BATCH, S, (S, S, P), Event.PREPARING, Reason.NONE),
    (BATCH, Status.CREATING, (R, R, P), None, Reason.NONE),
    (BATCH, Status.CREATING, (R, R, R), Event.READY, Reason.NONE),
    (WORK, Status.CREATING, (R, R, R), Event.READY, Reason.NONE),
    # a quick sub of a batch session is done, and no loss
    (BATCH, Status.CREATING, (R, DONE, R), Event.READY, Reason.NONE),
    (BATCH, R, (R, DONE, DONE), None, Reason.NONE),
    (WORK, R, (R, DONE, R), Event.FAIL, Reason.EXIT_ZERO),
    # one dead kernel ends it, or not
    (BATCH, R, (R, DEAD, R), Event.FAIL, Reason.OOM),
    (WORK, R, (R, R, LOST), Event.FAIL, Reason.AGENT_LOST),
    (DEGRADING, R, (R, DEAD, R), Event.DEGRADED, Reason.OOM),
    (WORK_ON, R, (R, LOST, DEAD), Event.DEGRADED, Reason.OOM),
    # nobody degrades before it has run
    (DEGRADING, Status.CREATING, (R, DEAD, R), Event.FAIL, Reason.OOM),
    # main1 decides when it has ended, whatever became of the subs
    (BATCH, R, (DONE, R, R), Event.COMPLETED, Reason.EXIT_ZERO),
    (BATCH, R, (DONE, DEAD, R), Event.COMPLETED, Reason.EXIT_ZERO),
    (BATCH, S, (DONE, S, S), Event.COMPLETED, Reason.EXIT_ZERO),
    (WORK, R, (WELL, R, R), Event.COMPLETED, Reason.AGENT_SHUTDOWN),
    (BATCH, R, (DEAD, R, R), Event.FAIL, Reason.OOM),
    (DEGRADING, R, (DEAD, R, R), Event.FAIL, Reason.OOM),
    (WORK_ON, R, (LOST, R, R), Event.FAIL, Reason.AGENT_LOST),
    # a batch session with retries runs again, all of it
    (AGAIN, R, (R, DEAD, R), Event.REQUEUE, Reason.OOM),
    (AGAIN, R, (DEAD, R, R), Event.REQUEUE, Reason.OOM),
    # on its way out it waits for all
    (BATCH, T, (DONE, T, T), None, Reason.NONE),
    (BATCH, T, (T, DEAD, T), None, Reason.NONE),
]


@pytest.mark.parametrize(("asked", "status", "kernels", "event", "reason"), TABLE)
def test_rules(
    asked: SessionSpec, status: Status, kernels: tuple[Seen, ...], event: Event | None, reason: Reason
) -> None:
    move = judge(facts(asked, status, *kernels), NOW, 120)
    assert (move and move.event, move.reason if move else Reason.NONE) == (event, reason)
    if move is not None and move.new is T:
        assert move.kernels_to is T, "the others are stopped"
    if event is Event.REQUEUE:
        assert move is not None
        assert (move.subs, move.kernels_to) == (2, T)


@pytest.mark.parametrize(
    ("reason", "main", "result", "status"),
    [
        (Reason.EXIT_ZERO, DONE, Result.SUCCESS, Status.TERMINATED),
        (Reason.EXIT_NONZERO, (Status.ERROR, Reason.EXIT_NONZERO), Result.FAILED, Status.TERMINATED),
        (Reason.OOM, (Status.TERMINATED, Reason.KILLED), Result.FAILED, Status.ERROR),
        (Reason.USER_REQUESTED, (Status.TERMINATED, Reason.KILLED), None, Status.TERMINATED),
    ],
)
def test_its_result_is_that_for_which_it_was_ended(
    reason: Reason, main: Seen, result: Result | None, status: Status
) -> None:
    stopped = (Status.TERMINATED, Reason.KILLED)
    move = judge(facts(BATCH, T, main, stopped, stopped, reason=reason), NOW, 120)
    assert move is not None
    assert (move.result, move.new, move.reason) == (result, status, reason)


@pytest.mark.parametrize("sub", [DONE, DEAD, LOST])
def test_all_ended_at_once_main1_tells(sub: Seen) -> None:
    move = judge(facts(BATCH, R, DONE, sub, sub), NOW, 120)
    assert move is not None
    assert (move.result, move.reason) == (Result.SUCCESS, Reason.EXIT_ZERO)


def test_degraded_is_said_once_for_each_and_its_time_goes_on() -> None:
    asked = facts(DEGRADING, R, R, DEAD, R, deadline_at=NOW + timedelta(seconds=25))
    first = judge(asked, NOW, 120)
    assert first is not None
    assert (first.deadline_s, first.kernels_to) == (25, None)
    assert first.detail == "without sub1: it used more memory than it had"
    told = replace(asked, detail=first.detail, reason=first.reason)
    assert judge(told, NOW, 120) is None
    more = judge(replace(told, kernels=facts(DEGRADING, R, R, DEAD, LOST).kernels), NOW, 120)
    assert more is not None
    assert more.detail.startswith(first.detail)
    assert "sub2" in more.detail
    late = judge(replace(told, deadline_at=NOW), NOW, 120)
    assert late is not None
    assert (late.event, late.reason) == (Event.FAIL, Reason.TIMEOUT)


def test_a_failed_start_is_tried_elsewhere_with_all_kernels() -> None:
    asked = facts(WORK, Status.CREATING, R, (Status.ERROR, Reason.IMAGE_MISSING), P, other_agents=1)
    move = judge(asked, NOW, 120)
    assert move is not None
    assert (move.event, move.subs, move.kernels_to) == (Event.RETRY, 2, T)
    assert move.detail.startswith("sub1: ")
    away = preempt(facts(WORK, R, R, R, R), "requeue", "other", 120)
    assert away is not None
    assert (away.event, away.subs) == (Event.PREEMPT, 2)


@pytest.mark.parametrize(("mode", "left", "again"), [
    ("multi-node", 3, True), ("multi-node", 2, False), ("single-node", 1, True), ("single-node", 0, False),
])  # fmt: skip
def test_a_start_is_tried_again_only_where_all_kernels_find_room(mode: str, left: int, again: bool) -> None:
    asked = SessionSpec.model_validate({"command": ["x"], "cluster": {"size": 3, "mode": mode}})
    failed = facts(asked, S, S, (Status.ERROR, Reason.IMAGE_MISSING), S, other_agents=left)
    move = judge(failed, NOW, 120)
    assert move is not None
    assert move.event is (Event.RETRY if again else Event.FAIL)
    waits = facts(asked, Status.PENDING, Status.PENDING, attempt=2, untried_agents=left)
    move = judge(waits, NOW, 120)
    assert (move is None) is again
    if move is not None:
        assert "left to try" in move.detail


KERNELS = st.one_of(
    st.sampled_from([S, P, Status.CREATING, R, T]),
    st.tuples(st.just(Status.TERMINATED), st.sampled_from([Reason.EXIT_ZERO, Reason.KILLED])),
    st.tuples(st.just(Status.ERROR), st.sampled_from(sorted(set(Reason) - {Reason.NONE}))),
)


@given(
    st.sampled_from([BATCH, DEGRADING, WORK, WORK_ON, AGAIN]),
    st.sampled_from([S, P, Status.CREATING, R, T]),
    st.tuples(KERNELS, KERNELS, KERNELS),
)
def test_every_situation_comes_to_an_end(asked: SessionSpec, status: Status, seen: tuple[Seen, ...]) -> None:
    """Judged again and again with nothing new, it comes to rest; and a session never rests with a dead main1,
    nor ends while a kernel lives."""
    now = facts(asked, status, *seen, other_agents=1)
    moves: list[Move] = []
    while now.status not in (*TERMINAL, Status.PENDING) and (move := judge(now, NOW, 120)) is not None:
        moves.append(move)
        assert len(moves) < 6, [move.event for move in moves]
        alive = any(kernel.status not in TERMINAL for kernel in now.kernels)
        assert move.new not in TERMINAL or not alive
        after = tuple(
            replace(k, status=move.kernels_to) if move.kernels_to and k.status not in TERMINAL else k
            for k in now.kernels
        )
        now = replace(now, status=move.new, reason=move.reason, detail=move.detail, kernels=after)
    if now.status is not T and now.status not in TERMINAL:
        assert now.kernels[0].status not in TERMINAL or now.status is Status.PENDING
