"""What becomes of a session whose kernel went with its node: the agent is back, and says that it is gone."""

from __future__ import annotations

import pytest
from test_lifecycle import BATCH, INFERENCE, INTERACTIVE, NOW, STUBBORN, facts

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.lifecycle.reconcile import judge
from moorage.manager.lifecycle.transitions import Event, SessionFacts

R, C = Status.RUNNING, Status.CREATING


def gone(status: Status, spec: object, **more: object) -> SessionFacts:
    kernel = Status.TERMINATED if status is Status.TERMINATING else Status.ERROR
    return facts(status, kernel, spec, kernel_reason=Reason.KERNEL_GONE, **more)  # type: ignore[arg-type]


STOPPED = {"reason": Reason.USER_REQUESTED}
CASES = [
    ("a program with retries runs again", gone(R, STUBBORN, requeues=1), (Event.REQUEUE, "PENDING")),
    ("its retries are used up", gone(R, STUBBORN, requeues=2), (Event.FAILED, "ERROR")),
    ("it has no retries", gone(R, BATCH, other_agents=1), (Event.FAILED, "ERROR")),
    ("a start: another agent, no retry used", gone(C, STUBBORN, other_agents=1), (Event.RETRY, "PENDING")),
    ("a start on the only node", gone(C, STUBBORN), (Event.REQUEUE, "PENDING")),
    ("a start on the only node, no retries", gone(C, BATCH), (Event.FAILED, "ERROR")),
    ("a service: its endpoint sees to it", gone(R, INFERENCE), (Event.FAILED, "ERROR")),
    ("a shell", gone(R, INTERACTIVE, other_agents=1), (Event.FAILED, "ERROR")),
    ("it was being stopped", gone(Status.TERMINATING, STUBBORN, **STOPPED), (Event.ENDED, "TERMINATED")),
]


@pytest.mark.parametrize(("given", "then"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_gone_with_its_node(given: SessionFacts, then: tuple[Event, str]) -> None:
    move = judge(given, NOW, 120)
    assert move is not None
    assert (move.event, str(move.new)) == then
    if move.event is Event.REQUEUE:
        assert move.pause_s
        assert "retry" in move.detail
