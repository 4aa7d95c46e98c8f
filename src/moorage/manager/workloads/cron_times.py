"""Times of cron expressions. Pure.

The meaning is that of Debian's cron, which CronSim follows: see
docs/decisions/2026-11-28-cron-jobs.md. A run at a fixed time that a clock change leaves out happens
right after the change, and a fixed time that comes twice counts once. An expression whose minute or
hour starts with ``*`` follows the real hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from moorage.common.model.cron_jobs import CronTimesSpec, expand_expression
from moorage.common.model.errors import InvalidInput

# Links to the settings of the host, which differ from manager to manager.
_OF_HOST = frozenset({"localtime", "posixrules", "Factory"})
_CHOICES = (
    "use numbers, names like MON and JAN, ranges like 1-5, lists like 1,15, and steps like */10"
)
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_WINDOWS = tuple(timedelta(hours=hours) for hours in (1, 24, 31 * 24, 366 * 24))
_NO_TIME = timedelta(microseconds=1)


@lru_cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones()) - _OF_HOST


@dataclass(frozen=True, slots=True)
class CronTimes:
    """``expression``: five fields. ``starts_at`` and ``ends_at``: the period of the times."""

    expression: str
    zone: ZoneInfo
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    @classmethod
    def of(cls, spec: CronTimesSpec) -> CronTimes:
        """Raises ``InvalidInput`` for an expression that is invalid or never comes, and for an
        unknown time zone."""
        if spec.time_zone not in _zones():
            raise InvalidInput(
                f"time_zone {spec.time_zone!r} is unknown",
                field="time_zone",
                next_step="use a name of the IANA database, such as Europe/Prague or UTC",
            )

        times = cls(
            expand_expression(spec.cron), ZoneInfo(spec.time_zone), spec.starts_at, spec.ends_at
        )
        try:
            CronSim(times.expression, _ANY_TIME)
        except CronSimError as error:
            raise _invalid(spec.cron, times.expression, str(error)) from None

        if cls(times.expression, times.zone).next_after(_ANY_TIME) is None:
            raise _never(spec.cron)
        return times

    def after(self, at: datetime) -> Iterator[datetime]:
        """All times after ``at``, in UTC, ascending."""
        last = at
        if self.starts_at is not None and self.starts_at > at:
            last = self.starts_at - _NO_TIME  # the start is included

        try:
            found = CronSim(self.expression, last.astimezone(self.zone))
            for local in found:
                time = local.astimezone(UTC)
                if self.ends_at is not None and time >= self.ends_at:
                    return
                # Local times go back at a change, and several left-out times are the same instant.
                if time > last and _exists(local):
                    last = time
                    yield time
        except (OverflowError, ValueError):  # the end of the calendar
            return

    def next_after(self, at: datetime) -> datetime | None:
        return next(self.after(at), None)

    def first_after(self, at: datetime, count: int) -> list[datetime]:
        return list(islice(self.after(at), count))

    def last_between(self, after: datetime, until: datetime) -> datetime | None:
        """The last time later than ``after`` and not later than ``until``. Looks back from the end,
        because an expression of every minute has half a million times in a year."""
        for window in _WINDOWS:
            start = max(after, until - window)
            last = None
            for time in self.after(start):
                if time > until:
                    break
                last = time

            if last is not None or start == after:
                return last

        last = None
        for time in self.after(after):
            if time > until:
                break
            last = time
        return last


def _exists(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo) == local


def _invalid(given: str, expression: str, why: str) -> InvalidInput:
    """``why``: the message of CronSim, which also refuses days that no month of the expression has,
    like February 30."""
    minute, hour, day, _, weekday = expression.split()
    try:
        CronSim(f"{minute} {hour} {day} * {weekday}", _ANY_TIME)
    except CronSimError:
        field = why.removeprefix("Bad ").replace("-", " ")
        return InvalidInput(
            f"cron {given!r} is invalid: its {field} is not possible",
            field="cron",
            next_step=_CHOICES,
        )

    if "month" in why and "day" not in why:
        return InvalidInput(
            f"cron {given!r} is invalid: its month is not possible",
            field="cron",
            next_step=_CHOICES,
        )
    return _never(given)


def _never(given: str) -> InvalidInput:
    return InvalidInput(
        f"cron {given!r} never comes: no day has this date",
        field="cron",
        next_step="correct the day of the month, the month or the day of the week",
    )
