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
from moorage.manager.lifecycle.kernels import (
    AgentUpdate,
    KernelChange,
    StoredKernel,
    ended_kernels,
    next_kernel_status,
)

K = KernelId("k")
S = SessionId("s")
none: frozenset[KernelId] = frozenset()


def update(**fields: Any) -> AgentUpdate:
    info = AgentInfo(
        AgentId("node"),
        "default",
        address="127.0.0.1",
        version="0",
        arch="x86_64",
        runtimes=(),
        engines=(),
        offers=(),
    )
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
    assert (
        next_kernel_status(status, Observation(K, S, observed, reason=Reason(reason))) is expected
    )


@pytest.mark.parametrize(
    ("status", "absent", "unacknowledged", "gone"),
    [
        (Status.SCHEDULED, False, True, False),  # its orders may still be in transit
        (Status.SCHEDULED, False, False, False),
        (Status.SCHEDULED, True, False, True),  # the agent accepted the orders but does not have it
        (Status.RUNNING, False, False, True),  # the agent had it
        (Status.RUNNING, False, True, False),  # it may be restarted at any moment
        (Status.TERMINATING, False, False, False),
        (Status.TERMINATING, False, True, False),  # the agent has not received the stop
        (Status.TERMINATING, True, False, True),
    ],
)
def test_kernel_omitted_from_a_full_report(
    status: Status, absent: bool, unacknowledged: bool, gone: bool
) -> None:
    only = frozenset({K})
    report = update(
        absent=only if absent else none, unacknowledged=only if unacknowledged else none
    )
    changes = kernel_changes([StoredKernel(K, S, status)], report)
    assert bool(changes) is gone
    assert all(c.new in TERMINAL for c in changes)
    reason = Reason.USER_REQUESTED if status is Status.TERMINATING else Reason.KERNEL_GONE
    assert all(c.observation.reason is reason for c in changes)


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
        (
            Status.PREPARING,
            ObservedState.PREPARING,
            "pulling: 2 of 3 MB",
            "pulling: 1 of 3 MB",
            True,
        ),
        (
            Status.PREPARING,
            ObservedState.PREPARING,
            "pulling: 2 of 3 MB",
            "pulling: 2 of 3 MB",
            False,
        ),
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


RUNS = ObservedState.RUNNING
SILENT = ObservedState.UNKNOWN


@pytest.mark.parametrize(
    ("status", "observed", "seen", "stored", "changed"),
    [
        (Status.RUNNING, RUNS, ("it hangs", 0), (False, 0), True),
        (Status.RUNNING, RUNS, ("it hangs", 0), (True, 0), False),
        (Status.RUNNING, RUNS, ("", 0), (True, 0), True),
        (Status.RUNNING, RUNS, ("", 0), (False, 0), False),
        (Status.RUNNING, RUNS, ("", 501), (False, 500), True),
        (Status.RUNNING, RUNS, ("", 500.5), (False, 500), False),
        (Status.RUNNING, SILENT, ("it hangs", 900), (False, 500), False),
        (Status.TERMINATING, RUNS, ("it hangs", 900), (False, 500), False),
    ],
)
def test_health_of_a_running_kernel_and_how_long_it_is_kept_are_changes(
    status: Status,
    observed: ObservedState,
    seen: tuple[str, float],
    stored: tuple[bool, float],
    changed: bool,
) -> None:
    observation = Observation(K, S, observed, unhealthy=seen[0], kept_until=seen[1])
    kernel = StoredKernel(K, S, status, unhealthy=stored[0], kept_until=stored[1])
    changes = kernel_changes([kernel], update(observed={K: observation}))
    assert [(c.old, c.new) for c in changes] == ([(status, status)] if changed else [])


def test_only_what_ends_or_had_been_given_up_is_freed() -> None:
    stored = [StoredKernel(K, S, Status.RUNNING)]
    report = update(absent=frozenset({K}))
    assert ended_kernels(stored, [], report) == [], "it lives as long as its end is not written"
    assert ended_kernels(stored, kernel_changes(stored, report), report) == [K]
    runs = Observation(K, S, RUNS)
    moves = [KernelChange(K, Status.CREATING, Status.RUNNING, runs)]
    assert ended_kernels(stored, moves, update(observed={K: runs})) == []


def test_what_an_update_says_has_ended() -> None:
    states = {
        KernelId(state.name): Observation(KernelId(state.name), S, state) for state in ObservedState
    }
    assert update(observed=states, absent=frozenset({K})).ended == {K, "EXITED", "GONE"}


CHANGES: list[dict[str, Any]] = [
    {"whole": True},
    {"info_changed": True},
    {"observed": {K: Observation(K, S, RUNS)}},
    {"absent": frozenset({K})},
    {"contact": True},
]


def test_heartbeat_says_nothing_else() -> None:
    nothing = {"whole": False, "info_changed": False}
    assert update(**nothing).is_heartbeat
    assert not any(update(**nothing | one).is_heartbeat for one in CHANGES)
    report = update()
    assert (report.whole, report.info_changed, report.contact, report.refuses_orders) == (
        True, True, False, False,
    )  # fmt: skip
    assert report.agent_id == "node"


def test_kernels_that_are_not_known_to_have_ended_are_unknown() -> None:
    other = KernelId("other")
    report = update(
        observed={other: Observation(other, S, RUNS)}, absent=frozenset({K, KernelId("gone")})
    )
    made = report.with_unknown([K])
    assert {name: seen.state for name, seen in made.observed.items()} == {other: RUNS, K: SILENT}
    assert made.absent == {"gone"}
    assert report.with_unknown([]) is report
