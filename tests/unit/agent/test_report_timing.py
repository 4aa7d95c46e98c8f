"""Coalescing windows of kernel state changes."""

from __future__ import annotations

import pytest

from moorage.agent.kernel.report_timing import HOUSEKEEPING, IMMEDIATE, TRANSIENT, coalescing_window
from moorage.common.model.status import ObservedState


@pytest.mark.parametrize(
    ("state", "window_s"),
    [
        (ObservedState.PREPARING, TRANSIENT),
        (ObservedState.CREATING, TRANSIENT),
        (ObservedState.RUNNING, IMMEDIATE),
        (ObservedState.STOPPING, TRANSIENT),
        (ObservedState.EXITED, IMMEDIATE),
        (ObservedState.GONE, IMMEDIATE),
        (ObservedState.UNKNOWN, IMMEDIATE),
    ],
)
def test_window_by_state(state: ObservedState, window_s: float) -> None:
    assert coalescing_window(state) == window_s


def test_windows_stay_below_what_users_notice() -> None:
    assert IMMEDIATE < TRANSIENT < HOUSEKEEPING <= 1.0
