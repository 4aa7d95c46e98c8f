"""Times of cron expressions and decisions about due runs: pure. CronDst, an independent program, is
the yardstick of the times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from crondst import CronDst, CronDstError
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.examples import examples

from moorage.common.model.cron_jobs import MACROS, CronJobSpec, CronTimesSpec
from moorage.common.model.errors import InvalidInput
from moorage.manager.workloads.cron_runs import MOST_COUNTED, due_runs, is_late
from moorage.manager.workloads.cron_times import CronTimes

PRAGUE = "Europe/Prague"
ZONES = (PRAGUE, "America/New_York", "Africa/Cairo", "Asia/Kolkata", "America/Santiago", "UTC")


def times(cron: str, zone: str = "UTC", **more: object) -> CronTimes:
    return CronTimes.of(CronTimesSpec.model_validate({"cron": cron, "time_zone": zone, **more}))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


# Around 2026-03-29, where 02:00 to 03:00 is left out, and 2026-10-25, where it comes twice.
CHANGES = [
    ("30 2 * * *", "2026-03-29T00:00+01:00",
     ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
    ("0,30 2 * * *", "2026-03-29T00:00+01:00",
     ["2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"]),
    ("0 * * * *", "2026-03-29T00:30+01:00", ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00"]),
    ("*/30 2 * * *", "2026-03-29T00:00+01:00",
     ["2026-03-30T02:00+02:00", "2026-03-30T02:30+02:00"]),
    ("30 2 * * *", "2026-10-25T00:00+02:00",
     ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
    ("30 2 * * *", "2026-10-25T02:45+02:00", ["2026-10-26T02:30+01:00"]),
    ("45 2 * * *", "2026-10-25T02:30+01:00", ["2026-10-26T02:45+01:00"]),
    ("0 * * * *", "2026-10-25T01:30+02:00",
     ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "after", "expected"), CHANGES)
def test_clock_changes(cron: str, after: str, expected: list[str]) -> None:
    found = times(cron, PRAGUE).first_after(at(after), len(expected))
    assert found == [at(time) for time in expected]


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 2,4,6,9,11 *", "never comes"),
        ("0 0 */31 2 1L", "never comes"),
        ("60 * * * *", "minute is not possible"),
        ("0 24 * * *", "hour is not possible"),
        ("0 0 0 * *", "day of month is not possible"),
        ("0 0 * 13 *", "month is not possible"),
        ("0 0 * * 8", "day of week is not possible"),
        ("*/0 * * * *", "minute is not possible"),
        ("5-1 * * * *", "minute is not possible"),
        ("0 0 * * MONDAY", "day of week is not possible"),
    ],
)
def test_refused_expressions(cron: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        times(cron)
    assert refused.value.field == "cron"


@pytest.mark.parametrize("cron", ["", "* * * *", "0 * * * * *", "@reboot", "@every 5m", "x" * 201])
def test_malformed_expressions(cron: str) -> None:
    with pytest.raises(ValidationError):
        CronTimesSpec(cron=cron)


@pytest.mark.parametrize("zone", ["Europe/Pragu", "localtime", "posixrules", "CEST2"])
def test_unknown_time_zones(zone: str) -> None:
    with pytest.raises(InvalidInput, match="time_zone"):
        times("@daily", zone)


@pytest.mark.parametrize("zone", ["../etc/passwd", "/etc/localtime", "", "a/b/c/d"])
def test_malformed_time_zones(zone: str) -> None:
    with pytest.raises(ValidationError):
        CronTimesSpec(cron="@daily", time_zone=zone)


def test_names_of_expressions() -> None:
    for name in MACROS:
        assert times(name).next_after(at("2026-11-28T10:30Z")) is not None
    assert times("@Hourly").next_after(at("2026-11-28T10:30Z")) == at("2026-11-28T11:00Z")


def test_the_period_includes_its_start_and_not_its_end() -> None:
    period = {"starts_at": "2026-12-01T07:00Z", "ends_at": "2026-12-03T07:00Z"}
    found = times("0 7 * * *", **period).first_after(at("2026-11-28T00:00Z"), 9)
    assert found == [at("2026-12-01T07:00Z"), at("2026-12-02T07:00Z")]


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    """A field as people write it: a value, a list, a range, a step, or every value."""
    number = st.integers(low, high)
    value = number.map(str)
    span = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    step = st.integers(2, 15).map(lambda n: f"*/{n}")
    return st.one_of(
        st.just("*"), value, span, step, st.lists(value, min_size=2, max_size=3).map(",".join)
    )


EXPRESSIONS = st.tuples(
    _field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 7)
).map(" ".join)
# Most near the clock changes of the zones.
STARTS = st.one_of(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.tuples(
        st.sampled_from([datetime(2026, m, d) for m, d in ((3, 8), (3, 29), (4, 5), (10, 25))]),
        st.integers(-3000, 3000),
    ).map(lambda pair: pair[0] + timedelta(minutes=pair[1])),
).map(lambda time: time.replace(second=0, microsecond=0, tzinfo=UTC))


@given(EXPRESSIONS, st.sampled_from(ZONES), STARTS)
@examples(300)
def test_the_times_are_those_of_another_program(cron: str, zone: str, start: datetime) -> None:
    found = times(cron, zone).first_after(start, 8)
    local = start.astimezone(ZoneInfo(zone))
    try:
        yardstick = CronDst(cron)
    except CronDstError:  # it refuses every expression for February alone
        assume(False)
    # It repeats an instant for each of the times that a change leaves out.
    other = dict.fromkeys(
        time.astimezone(UTC) for time in islice(yardstick.iter(local), 60) if time
    )
    assert found == [time for time in other if time > start][:8]


@given(EXPRESSIONS, st.sampled_from(ZONES), STARTS)
@examples(100)
def test_times_ascend_and_do_not_depend_on_where_one_starts(
    cron: str, zone: str, start: datetime
) -> None:
    clock = times(cron, zone)
    found = clock.first_after(start, 6)
    assert found == sorted(set(found))
    for earlier, later in pairwise(found):
        assert clock.next_after(earlier) == later
        assert clock.next_after(later - timedelta(seconds=1)) == later
        assert clock.last_between(start, later) == later


def job(**fields: object) -> CronJobSpec:
    base: dict[str, object] = {"cron": "0 * * * *", "session": {"command": ["x"]}}
    return CronJobSpec.model_validate(base | fields)


NOON = at("2026-11-28T12:00Z")


@pytest.mark.parametrize(
    ("fields", "late_s", "starts", "missed"),
    [
        ({}, 0, 0, 0),
        ({}, 120, 0, 0),
        ({}, 121, None, 1),
        ({}, 7200 + 60, 2, 2),
        ({}, 7200 + 121, None, 3),
        ({"start_deadline_s": 600}, 600, 0, 0),
        ({"start_deadline_s": 600}, 601, None, 1),
        ({"missed": "run-once"}, 86_400 - 1, 23, 23),
        ({"missed": "run-once"}, 86_400 * 400, 9600, MOST_COUNTED),
        ({"missed": "run-once", "start_deadline_s": 60}, 61, None, 1),
    ],
)
def test_late_runs(
    fields: dict[str, object], late_s: float, starts: int | None, missed: int
) -> None:
    """``starts``: the hour after noon whose run starts."""
    spec = job(**fields)
    now = NOON + timedelta(seconds=late_s)
    due = due_runs(spec, CronTimes.of(spec), NOON, now)

    assert due.start == (None if starts is None else NOON + timedelta(hours=starts))
    assert (due.missed.count if due.missed else 0) == missed
    assert due.next_at is not None
    assert due.next_at > now


def test_the_last_run_before_the_end_leaves_nothing_due() -> None:
    spec = job(ends_at="2026-11-28T13:00Z")
    due = due_runs(spec, CronTimes.of(spec), NOON, NOON)
    assert (due.start, due.missed, due.next_at) == (NOON, None, None)


@given(
    EXPRESSIONS,
    st.sampled_from(ZONES),
    STARTS,
    st.lists(st.integers(1, 400_000), min_size=1, max_size=12),
    st.sampled_from(["skip", "run-once"]),
)
@examples(100)
def test_every_time_is_started_or_missed_once(
    cron: str, zone: str, start: datetime, pauses_s: list[int], missed: str
) -> None:
    """No matter how long the leader pauses between its looks."""
    spec = job(cron=cron, time_zone=zone, missed=missed)
    clock = CronTimes.of(spec)
    next_at = clock.next_after(start)
    now = start
    settled: list[datetime] = []
    for pause_s in pauses_s:
        now += timedelta(seconds=pause_s)
        while next_at is not None and next_at <= now:
            due = due_runs(spec, clock, next_at, now)
            if (gone := due.missed) is not None:
                known = [gone.first, *_until(clock, gone.first, gone.last)]
                assert gone.count == min(len(known), MOST_COUNTED)
                settled += known
            if due.start is not None:
                assert not is_late(spec, due.start, now)
                settled.append(due.start)
            next_at = due.next_at

    assert settled == _until(clock, start, now)


def _until(clock: CronTimes, after: datetime, last: datetime) -> list[datetime]:
    return list(takewhile(lambda time: time <= last, clock.after(after)))
