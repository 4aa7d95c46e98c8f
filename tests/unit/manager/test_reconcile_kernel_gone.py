"""Rules that reconcile a session whose kernel is reported as gone after its node returned."""

from __future__ import annotations

import pytest
from test_lifecycle import BATCH, INFERENCE, INTERACTIVE, NOW, STUBBORN, session

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.lifecycle import Event, SessionSnapshot, reconcile_session

R = Status.RUNNING
C = Status.CREATING


def gone(status: Status, spec: object, **fields: object) -> SessionSnapshot:
    kernel = Status.TERMINATED if status is Status.TERMINATING else Status.ERROR
    return session(status, kernel, spec, kernel_reason=Reason.KERNEL_GONE, **fields)  # type: ignore[arg-type]


STOPPED = {"reason": Reason.USER_REQUESTED}
CASES = [
    ("program with retries left", gone(R, STUBBORN, requeues=1), (Event.REQUEUE, "PENDING")),
    ("no retries left", gone(R, STUBBORN, requeues=2), (Event.FAILED, "ERROR")),
    ("program without retries", gone(R, BATCH, other_agents=1), (Event.FAILED, "ERROR")),
    (
        "start, another agent: a retry is not used up",
        gone(C, STUBBORN, other_agents=1),
        (Event.RETRY, "PENDING"),
    ),
    ("start on the only agent", gone(C, STUBBORN), (Event.REQUEUE, "PENDING")),
    ("start on the only agent, no retries", gone(C, BATCH), (Event.FAILED, "ERROR")),
    ("replica: its endpoint replaces it", gone(R, INFERENCE), (Event.FAILED, "ERROR")),
    ("interactive session", gone(R, INTERACTIVE, other_agents=1), (Event.FAILED, "ERROR")),
    (
        "session was being stopped",
        gone(Status.TERMINATING, STUBBORN, **STOPPED),
        (Event.ENDED, "TERMINATED"),
    ),
]


@pytest.mark.parametrize(
    ("given", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_kernel_gone(given: SessionSnapshot, expected: tuple[Event, str]) -> None:
    transition = reconcile_session(given, NOW, 120)
    assert transition is not None
    assert (transition.event, str(transition.new)) == expected
    if transition.event is Event.REQUEUE:
        assert transition.backoff_s
        assert "retry" in transition.detail
