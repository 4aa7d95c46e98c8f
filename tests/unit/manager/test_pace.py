"""How long agents are told to rest between reports (``manager.rpc.pace``)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.manager.rpc.report_interval import LEAST_S, LONGEST_S, ReportInterval

WAITS = st.floats(0, 60, allow_nan=False)


def test_nobody_rests_where_reports_are_taken_in_at_once() -> None:
    pace = ReportInterval()
    for _ in range(1000):
        pace.took(0.003)
    assert pace.rest_s == 0.0


def test_a_single_slow_report_is_no_reason_and_many_are() -> None:
    pace = ReportInterval()
    pace.took(0.1)
    assert pace.rest_s == 0.0
    for _ in range(50):
        pace.took(0.05)
    assert 0.15 < pace.rest_s < 0.25  # four times what they waited, nearly
    for _ in range(200):
        pace.took(0.003)
    assert pace.rest_s == 0.0  # and it ends


@given(st.lists(WAITS, max_size=200), WAITS)
def test_it_stays_within_its_bounds_and_never_falls_for_a_longer_wait(
    waits: list[float], last: float
) -> None:
    short, long = ReportInterval(), ReportInterval()
    for seconds in waits:
        short.took(seconds)
        long.took(seconds)
    short.took(last)
    long.took(last + 1.0)
    for pace in (short, long):
        assert pace.rest_s == 0.0 or LEAST_S <= pace.rest_s <= LONGEST_S
    assert short.rest_s <= long.rest_s
