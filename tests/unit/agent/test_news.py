"""Which news go at once, and which wait for company."""

from __future__ import annotations

import pytest

from moorage.agent.link.report_timing import HOUSEKEEPING, IMMEDIATE, TRANSIENT, coalescing_window
from moorage.common.model.status import ObservedState


@pytest.mark.parametrize(
    ("state", "wait_s"),
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
def test_what_is_waited_for_goes_at_once(state: ObservedState, wait_s: float) -> None:
    assert coalescing_window(state) == wait_s


def test_no_news_wait_as_long_as_people_notice() -> None:
    assert IMMEDIATE < TRANSIENT < HOUSEKEEPING <= 1.0
