"""Reconciliation of stored kernels with an agent's report."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from moorage.common.link.messages import AgentInfo, Observation, Report
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.status import TERMINAL, ObservedState, Status
from moorage.manager.lifecycle import kernel_changes
from moorage.manager.lifecycle.kernels import AgentUpdate, StoredKernel, ended_kernels, next_kernel_status

K, S = KernelId("k"), SessionId("s")
none: frozenset[KernelId] = frozenset()


def update(**fields: Any) -> AgentUpdate:
    info = AgentInfo(AgentId("node"), "default", "127.0.0.1", "0", "x86_64", (), (), ())
    return replace(AgentUpdate.of(Report(info, "incarnation", 0, ())), **fields)


@pytest.mark.parametrize(
    ("status", "observed", "reason", "expected"),
    [
        (Status.SCHEDULED, ObservedState.RUNNING, "", Status.RUNNING),
        (Status.SCHEDULED, ObservedState.CREATING, "", Status.CREATING),
        (Status.CREATING, ObservedState.PREPARING, "", Status.PREPARING),
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
def test_kernel_that_has_run_moves_only_forward(
    status: Status, observed: ObservedState, reason: str, expected: Status
) -> None:
    assert next_kernel_status(status, Observation(K, S, observed, reason=Reason(reason))) is expected


@pytest.mark.parametrize(
    ("status", "absent", "unacknowledged", "gone"),
    [
        (Status.SCHEDULED, False, True, False),  # its orders may still be on their way
        (Status.SCHEDULED, False, False, False),
        (Status.SCHEDULED, True, False, True),  # the agent accepted the orders and does not have it
        (Status.RUNNING, False, False, True),  # the agent had it
        (Status.RUNNING, False, True, False),  # it may be started again at any moment
        (Status.TERMINATING, False, False, False),
        (Status.TERMINATING, False, True, False),  # the agent has not received the stop
        (Status.TERMINATING, True, False, True),
    ],
)
def test_kernel_omitted_from_a_full_report(
    status: Status, absent: bool, unacknowledged: bool, gone: bool
) -> None:
    only = frozenset({K})
    report = update(absent=only if absent else none, unacknowledged=only if unacknowledged else none)
    changes = kernel_changes([StoredKernel(K, S, status)], report)
    assert bool(changes) is gone
    assert all(c.new in TERMINAL for c in changes)


@pytest.mark.parametrize("status", [Status.SCHEDULED, Status.RUNNING, Status.TERMINATING])
def test_partial_update_says_nothing_about_other_kernels(status: Status) -> None:
    stored = [StoredKernel(K, S, status)]
    assert kernel_changes(stored, update(whole=False)) == []
    (change,) = kernel_changes(stored, update(whole=False, absent=frozenset({K})))
    assert change.new in TERMINAL


@pytest.mark.parametrize(
    ("observed", "absent", "freed"),
    [
        (None, False, False),
        (None, True, True),
        (ObservedState.RUNNING, False, False),
        (ObservedState.UNKNOWN, False, False),
        (ObservedState.EXITED, False, True),
    ],
)
def test_kernel_that_was_given_up_is_freed_once_it_has_ended(
    observed: ObservedState | None, absent: bool, freed: bool
) -> None:
    seen = {K: Observation(K, S, observed)} if observed else {}
    report = update(observed=seen, absent=frozenset({K}) if absent else none)
    assert ended_kernels([StoredKernel(K, S, Status.ERROR)], [], report) == ([K] if freed else [])


@pytest.mark.parametrize(
    ("status", "observed", "detail", "stored", "changed"),
    [
        (Status.PREPARING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "pulling: 1 of 3 MB", True),
        (Status.PREPARING, ObservedState.PREPARING, "pulling: 2 of 3 MB", "pulling: 2 of 3 MB", False),
        (Status.PREPARING, ObservedState.PREPARING, "", "pulling: 2 of 3 MB", False),
        (Status.CREATING, ObservedState.CREATING, "loading", "", True),
        (Status.RUNNING, ObservedState.RUNNING, "anything", None, False),
        (Status.CREATING, ObservedState.UNKNOWN, "it did not answer", "loading", False),
    ],
)
def test_progress_of_a_start_is_a_change(
    status: Status, observed: ObservedState, detail: str, stored: str | None, changed: bool
) -> None:
    report = update(whole=False, observed={K: Observation(K, S, observed, detail=detail)})
    changes = kernel_changes([StoredKernel(K, S, status, stored)], report)
    assert [(c.old, c.new) for c in changes] == ([(status, status)] if changed else [])


def test_kernel_observation_is_idempotent() -> None:
    for status, state in product(Status, ObservedState):
        observation = Observation(K, S, state, reason=Reason.KILLED)
        once = next_kernel_status(status, observation)
        assert next_kernel_status(once, observation) is once
