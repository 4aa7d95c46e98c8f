"""Jumps of the database's clock, found by the monotonic clock of one process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.status import LIVE, Status
from moorage.manager.lifecycle.clock_jumps import (
    SETTLE_S,
    TOLERANCE_S,
    Reading,
    deadline_counts,
    forward_jump_s,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def reading(at_s: float, sent: float, took: float = 0.0) -> Reading:
    return Reading(T0 + timedelta(seconds=at_s), sent, sent + took)


@pytest.mark.parametrize(
    ("earlier", "later", "jump_s"),
    [
        (reading(0, 100), reading(2, 102), 0),
        (reading(0, 100), reading(3602, 102), 3600),
        # set back: deadlines pass late, which is harmless
        (reading(0, 100), reading(-3598, 102), 0),
        (
            reading(0, 100),
            reading(2, 3702),
            0,
        ),  # the monotonic clock leapt, which looks the same to a reader
        (reading(0, 100, 30), reading(32, 130, 30), 0),  # slow answers are not a jump
        (reading(30, 100, 30), reading(90, 130, 30), 0),
        (reading(0, 100, 1), reading(3602, 102, 1), 3601),  # the largest value that fits
        (reading(0, 100), reading(2 + TOLERANCE_S, 102), 0),
    ],
)
def test_forward_jump(earlier: Reading, later: Reading, jump_s: float) -> None:
    assert forward_jump_s(earlier, later) == jump_s


@given(
    passed=st.floats(0, 1000),
    jump=st.floats(-1e5, 1e5),
    took=st.floats(0, 60),
    late=st.tuples(*[st.floats(0, 1)] * 2),
)
def test_deadlines_moved_by_a_jump_are_never_early(
    passed: float, jump: float, took: float, late: tuple[float, float]
) -> None:
    """``late``: when, between sending and receiving, the database read its clock."""
    earlier = reading(late[0] * took, 0, took)
    later = reading(took + passed + late[1] * took + jump, took + passed, took)
    moved = forward_jump_s(earlier, later)
    # The uncorrected part is within the uncertainty of the readings.
    assert moved >= jump - 1e-6 or (moved == 0 and jump <= 2 * took + TOLERANCE_S + 1e-6)
    assert moved <= max(0.0, jump) + 2 * took + 1e-6


def test_new_leader_waits_for_agents_before_deadlines_of_their_answers_count() -> None:
    own = {Status.PENDING, Status.RUNNING}
    assert {status for status in LIVE if deadline_counts(status, 0)} == own
    assert {status for status in LIVE if deadline_counts(status, SETTLE_S)} == LIVE
