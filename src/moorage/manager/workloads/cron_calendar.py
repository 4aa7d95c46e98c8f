"""Entries of the calendar: coming runs of cron jobs, and the grouping of frequent runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import groupby, takewhile

from moorage.common.views.calendar import CalendarEntry, CalendarKind
from moorage.manager.workloads.cron_times import CronTimes

# More entries of one cron job on a day than this are shown as one.
MOST_A_DAY = 3
# A cron job of every minute has 45,000 times in a month.
MOST_TIMES = 50_000


def coming(
    name: str, ref: str, times: CronTimes, *, after: datetime, until: datetime
) -> list[CalendarEntry]:
    """The coming runs of a cron job later than ``after`` and before ``until``."""
    found = takewhile(lambda time: time < until, times.after(after))
    entries = (
        CalendarEntry(kind=CalendarKind.COMING, at=time, name=name, ref=ref)
        for _, time in zip(range(MOST_TIMES), found, strict=False)
    )
    return list(grouped(entries))


def grouped(entries: Iterable[CalendarEntry]) -> Iterator[CalendarEntry]:
    """Entries by time; those of one cron job on one day that are alike are one entry if they are
    many. ``entries``: in the order of their times."""
    by_kind = sorted(entries, key=lambda entry: (_alike(entry), entry.at))
    for _, group in groupby(by_kind, key=_alike):
        alike = list(group)
        if len(alike) <= MOST_A_DAY:
            yield from alike
        else:
            yield alike[0].model_copy(update={"last_at": alike[-1].at, "count": len(alike)})


def _alike(entry: CalendarEntry) -> tuple[str, date, str, str]:
    return entry.ref, entry.at.date(), str(entry.kind), str(entry.state or "")
