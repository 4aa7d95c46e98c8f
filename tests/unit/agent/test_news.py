"""Which news go at once, and which wait for company."""

from __future__ import annotations

import pytest

from moorage.agent.link.report_timing import AT_ONCE, HOUSEKEEPING, PASSING, may_wait
from moorage.common.model.status import ObservedState


@pytest.mark.parametrize(
    ("state", "wait_s"),
    [
        (ObservedState.PREPARING, PASSING),
        (ObservedState.CREATING, PASSING),
        (ObservedState.RUNNING, AT_ONCE),
        (ObservedState.STOPPING, PASSING),
        (ObservedState.EXITED, AT_ONCE),
        (ObservedState.GONE, AT_ONCE),
        (ObservedState.UNKNOWN, AT_ONCE),
    ],
)
def test_what_is_waited_for_goes_at_once(state: ObservedState, wait_s: float) -> None:
    assert may_wait(state) == wait_s


def test_no_news_wait_as_long_as_people_notice() -> None:
    assert AT_ONCE < PASSING < HOUSEKEEPING <= 1.0
