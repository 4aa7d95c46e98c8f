"""Times that people type: absolute, or as a duration from now. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.common.model.durations import parse_duration
from moorage.common.model.errors import InvalidInput


def future(text: str, now: datetime, option: str) -> datetime:
    """Parse a duration from now (``30d``), or a date and time with its UTC offset.

    Raises ``InvalidInput``, which names the option and the text.
    """
    if (seconds := _duration(text)) is not None:
        return now + timedelta(seconds=seconds)

    at = _timestamp(text)
    if at is None or at.tzinfo is None:
        raise InvalidInput(
            f"{option} {text!r} is not a time",
            next_step="write a duration like 5m, 12h or 30d, or a time like 2030-01-01T00:00:00Z",
        )

    return at


def past(text: str, now: datetime, option: str) -> datetime:
    """Parse a past duration (``10m`` ago), a time today (``13:00``), or a date and time, which is
    local time if it has no offset.

    Raises ``InvalidInput``, which names the option and the text.
    """
    if (seconds := _duration(text)) is not None:
        return now - timedelta(seconds=seconds)

    at = _timestamp(text)
    if at is None and ":" in text:
        at = _timestamp(f"{now.astimezone():%Y-%m-%d}T{text.strip()}")

    if at is None:
        raise InvalidInput(
            f"{option} {text!r} is not a time",
            next_step=(
                "write a time like 2026-05-04T13:00 or 13:00 (today), or a duration like 10m (ago)"
            ),
        )

    return at if at.tzinfo is not None else at.astimezone()


def _duration(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _timestamp(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None
