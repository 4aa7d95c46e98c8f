"""Reconciliation of stored kernels with an agent's report."""

from __future__ import annotations

from itertools import product

import pytest

from moorage.common.link.messages import Observation
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import TERMINAL, ObservedState, Status
from moorage.manager.lifecycle import kernel_changes
from moorage.manager.lifecycle.kernels import next_kernel_status

K, S = KernelId("k"), SessionId("s")


@pytest.mark.parametrize(
    ("status", "observed", "reason", "expected"),
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
def test_kernel_status_moves_only_forward(
    status: Status, observed: ObservedState, reason: str, expected: Status
) -> None:
    assert next_kernel_status(status, Observation(K, S, observed, reason=Reason(reason))) is expected


@pytest.mark.parametrize(
    ("status", "accepted", "gone"),
    [
        (Status.SCHEDULED, None, False),  # its orders may still be on their way
        (Status.SCHEDULED, frozenset(), False),
        (Status.SCHEDULED, frozenset({K}), True),  # the agent accepted the orders and does not have it
        (Status.RUNNING, None, True),  # the agent had it
        (Status.RUNNING, frozenset(), True),
        (Status.TERMINATING, None, False),
        (Status.TERMINATING, frozenset({K}), False),  # the agent has not received the stop
        (Status.TERMINATING, frozenset(), True),
    ],
)
def test_kernel_omitted_from_a_report(
    status: Status, accepted: frozenset[KernelId] | None, gone: bool
) -> None:
    changes = kernel_changes([(K, S, status)], {}, accepted)
    assert bool(changes) is gone
    assert all(c.new in TERMINAL for c in changes)


@pytest.mark.parametrize(
    ("status", "observed", "detail", "stored", "changed"),
    [
        (Status.PREPARING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "pulling: 1 of 3 MB", True),
        (Status.PREPARING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "pulling: 2 of 3 MB", False),
        (Status.PREPARING, ObservedState.PREPARING, "", "pulling: 2 of 3 MB", False),
        (Status.CREATING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "", False),  # a late report
        (Status.CREATING, ObservedState.CREATING, "loading", "", True),
        (Status.RUNNING, ObservedState.RUNNING, "anything", None, False),
        (Status.CREATING, ObservedState.UNKNOWN, "it did not answer", "loading", False),
    ],
)
def test_progress_of_a_start_is_a_change(
    status: Status, observed: ObservedState, detail: str, stored: str | None, changed: bool
) -> None:
    report = {K: Observation(K, S, observed, detail=detail)}
    progress = {} if stored is None else {K: stored}
    changes = kernel_changes([(K, S, status)], report, None, progress)
    assert [(c.old, c.new) for c in changes] == ([(status, status)] if changed else [])


def test_kernel_observation_is_idempotent() -> None:
    for status, state in product(Status, ObservedState):
        observation = Observation(K, S, state, reason=Reason.KILLED)
        once = next_kernel_status(status, observation)
        assert next_kernel_status(once, observation) is once
