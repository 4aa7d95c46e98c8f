"""Intervals between reports: the minimum under load, and the heartbeat interval by number of
agents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.common.aio.pauses import ON_BACKLOG
from moorage.manager.rpc.report_interval import HEARTBEATS_PER_S, MIN_S, STEP_S, ReportInterval

WAITS = st.floats(0, 60, allow_nan=False)


def test_fast_reports_need_no_interval() -> None:
    interval = ReportInterval()
    for _ in range(1000):
        interval.record(0.003)
    assert interval.pause_s == 0.0


def test_many_slow_reports_lengthen_the_interval_and_one_does_not() -> None:
    interval = ReportInterval()
    interval.record(0.1)
    assert interval.pause_s == 0.0
    for _ in range(50):
        interval.record(0.05)
    assert 0.15 < interval.pause_s < 0.25  # almost four times the wait
    for _ in range(200):
        interval.record(0.003)
    assert interval.pause_s == 0.0  # fast reports end it


@given(st.lists(WAITS, max_size=200), WAITS)
def test_interval_is_bounded_and_monotonic_in_the_wait(waits: list[float], last: float) -> None:
    short = ReportInterval()
    long = ReportInterval()
    for seconds in waits:
        short.record(seconds)
        long.record(seconds)

    short.record(last)
    long.record(last + 1.0)
    for interval in (short, long):
        assert interval.pause_s == 0.0 or MIN_S <= interval.pause_s <= ON_BACKLOG.longest_s

    assert short.pause_s <= long.pause_s


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=50))
def test_heartbeats_of_all_agents_come_at_a_bounded_rate(fleet: list[int]) -> None:
    """Nor is the interval longer than the bound would require for a fleet that is a quarter
    larger."""
    interval = ReportInterval()
    for agents in fleet:
        interval.adapt(agents)
        heartbeat_s = interval.heartbeat_s or STEP_S
        assert agents / heartbeat_s <= HEARTBEATS_PER_S
        assert heartbeat_s <= max(STEP_S, 1.25 * agents / HEARTBEATS_PER_S + STEP_S + 0.01)


def test_interval_does_not_follow_small_changes_of_the_fleet() -> None:
    interval = ReportInterval()
    seen = set()
    for agents in (9_900, 10_100, 9_900, 10_050, 9_000):
        interval.adapt(agents)
        seen.add(interval.heartbeat_s)
    assert seen == {25.0, 30.0}
    interval.adapt(500)
    assert interval.heartbeat_s == 0.0
