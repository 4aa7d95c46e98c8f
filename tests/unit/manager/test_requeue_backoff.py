"""The backoff before a batch program runs again."""

from __future__ import annotations

from test_lifecycle import NOW, STUBBORN, session

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Status
from moorage.manager.lifecycle import reconcile_session


def test_requeue_backoff_doubles_up_to_a_maximum() -> None:
    spec = STUBBORN.model_copy(update={"retries": 20, "retry_backoff_s": 5})
    backoffs = []
    for requeues in range(20):
        one = session(
            Status.RUNNING, Status.ERROR, spec, kernel_reason=Reason.KILLED, requeues=requeues
        )
        transition = reconcile_session(one, NOW, 120)
        assert transition is not None
        backoffs.append(transition.backoff_s)
        assert transition.deadline_s == 60 + (transition.backoff_s or 0), (
            "the backoff does not count against pending_timeout_s"
        )
        assert f"retry {requeues + 1} of 20" in transition.detail

    assert backoffs[:7] == [5, 10, 20, 40, 80, 160, 300]
    assert set(backoffs[7:]) == {300}
