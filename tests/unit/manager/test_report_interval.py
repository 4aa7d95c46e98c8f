"""Backpressure on agents: the minimum interval between reports."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.aio.pauses import ON_BACKLOG
from moorage.manager.rpc.report_interval import MIN_S, ReportInterval

WAITS = st.floats(0, 60, allow_nan=False)


def test_fast_reports_need_no_interval() -> None:
    interval = ReportInterval()
    for _ in range(1000):
        interval.record(0.003)
    assert interval.interval_s == 0.0


def test_many_slow_reports_lengthen_the_interval_and_one_does_not() -> None:
    interval = ReportInterval()
    interval.record(0.1)
    assert interval.interval_s == 0.0
    for _ in range(50):
        interval.record(0.05)
    assert 0.15 < interval.interval_s < 0.25  # almost four times the wait
    for _ in range(200):
        interval.record(0.003)
    assert interval.interval_s == 0.0  # fast reports end it


@given(st.lists(WAITS, max_size=200), WAITS)
def test_interval_is_bounded_and_monotonic_in_the_wait(waits: list[float], last: float) -> None:
    short, long = ReportInterval(), ReportInterval()
    for seconds in waits:
        short.record(seconds)
        long.record(seconds)
    short.record(last)
    long.record(last + 1.0)
    for interval in (short, long):
        assert interval.interval_s == 0.0 or MIN_S <= interval.interval_s <= ON_BACKLOG.longest_s
    assert short.interval_s <= long.interval_s
