"""REST models for the calendar."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from moorage.common.model.cron_jobs import CronRunState
from moorage.common.views.resources import View


class CalendarKind(StrEnum):
    """What an entry is: a past run of a cron job, a coming one, a session that starts later, or the
    expected start of a pending session."""

    RUN = "run"
    COMING = "coming"
    SESSION = "session"
    EXPECTED = "expected"


class CalendarEntry(View):
    """One entry, or several of the same cron job on one day in UTC."""

    kind: CalendarKind
    at: datetime
    last_at: datetime | None = Field(
        default=None, description="The last time, if the entry stands for several."
    )
    count: int = Field(default=1, description="For how many it stands.")
    name: str = Field(description="Name of the cron job or of the session.")
    ref: str = Field(description="Id of the cron job or of the session.")
    state: CronRunState | None = Field(default=None, description="run: its state.")
    session_id: str | None = Field(default=None, description="run: its session.")
    pipeline_id: str | None = Field(default=None, description="run: its pipeline.")


class Calendar(View):
    """Entries by time."""

    entries: list[CalendarEntry]
    complete: bool = Field(description="Whether there are no others in this period.")
