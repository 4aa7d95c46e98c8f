"""Events that subscriptions report, and the names by which people choose them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from moorage.common.model.errors import InvalidInput

Channel = Literal["webhook", "mail"]
BodyFormat = Literal["json", "slack", "discord"]

# The name of a user's subscription that sessions use unless they name another one.
DEFAULT_TARGET = "mail"
# Longest text of a target: a URL or an e-mail address.
MAX_TARGET = 2000


class NotificationEvent(StrEnum):
    """Kinds of events, named as in Standard Webhooks: the subject, a dot and what happened."""

    SESSION_STARTED = "session.started"
    SESSION_ENDED = "session.ended"
    SESSION_FAILED = "session.failed"
    SESSION_TIME_LIMIT = "session.time-limit"
    SESSION_WAITING = "session.waiting"
    PIPELINE_ENDED = "pipeline.ended"
    PIPELINE_FAILED = "pipeline.failed"
    BUDGET_WARNING = "budget.warning"
    BUDGET_EXHAUSTED = "budget.exhausted"
    ENDPOINT_DEGRADED = "endpoint.degraded"
    NODE_LOST = "node.lost"
    TEST = "test"
    """Sent on request; nobody subscribes to it."""


SessionEvent = Literal[
    NotificationEvent.SESSION_STARTED,
    NotificationEvent.SESSION_ENDED,
    NotificationEvent.SESSION_FAILED,
    NotificationEvent.SESSION_TIME_LIMIT,
    NotificationEvent.SESSION_WAITING,
]
NotifyTarget = Annotated[str, Field(pattern=r"^[^\s\x00]+$", max_length=MAX_TARGET)]
CHOICES = tuple(event for event in NotificationEvent if event is not NotificationEvent.TEST)
SESSION_EVENTS = frozenset(event for event in CHOICES if event.startswith("session."))
# Events of the platform, for administrators and auditors.
PLATFORM_EVENTS = frozenset({NotificationEvent.NODE_LOST})
# An event that includes another one: a session that fails has also ended.
INCLUDES = {
    NotificationEvent.SESSION_ENDED: NotificationEvent.SESSION_FAILED,
    NotificationEvent.PIPELINE_ENDED: NotificationEvent.PIPELINE_FAILED,
}

# Short names for sessions, among them those of sbatch's --mail-type.
_SHORT = {
    "begin": (NotificationEvent.SESSION_STARTED,),
    "start": (NotificationEvent.SESSION_STARTED,),
    "started": (NotificationEvent.SESSION_STARTED,),
    "end": (NotificationEvent.SESSION_ENDED,),
    "ended": (NotificationEvent.SESSION_ENDED,),
    "fail": (NotificationEvent.SESSION_FAILED,),
    "failed": (NotificationEvent.SESSION_FAILED,),
    "time-limit": (NotificationEvent.SESSION_TIME_LIMIT,),
    "time_limit": (NotificationEvent.SESSION_TIME_LIMIT,),
    "waiting": (NotificationEvent.SESSION_WAITING,),
    "all": (
        NotificationEvent.SESSION_STARTED,
        NotificationEvent.SESSION_ENDED,
        NotificationEvent.SESSION_FAILED,
        NotificationEvent.SESSION_TIME_LIMIT,
    ),
}


def parse_events(texts: Iterable[str], field: str = "events") -> tuple[NotificationEvent, ...]:
    """Events by their names, or by the short names of session events, without duplicates. Raises
    ``InvalidInput``."""
    found: dict[NotificationEvent, None] = {}
    for text in texts:
        name = text.strip()
        if (short := _SHORT.get(name.lower())) is not None:
            found.update(dict.fromkeys(short))
        elif name in CHOICES:
            found[NotificationEvent(name)] = None
        else:
            raise InvalidInput(
                f"{name[:60]!r} is not an event",
                field=field,
                next_step=f"use {', '.join(CHOICES)}, or begin, end, fail, time-limit, all",
            )

    return tuple(found)
