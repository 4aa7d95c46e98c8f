"""Time stamps in requests. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

_FIRST_YEAR = 1970
_LAST_YEAR = 2999


def _in_utc(value: datetime) -> datetime:
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        utc = None
    if utc is None or not _FIRST_YEAR <= utc.year <= _LAST_YEAR:
        raise ValueError(f"a time must be in the years {_FIRST_YEAR} to {_LAST_YEAR} in UTC")
    return utc


Timestamp = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""RFC 3339 with an offset, converted to UTC. Implausible years are rejected, because applying the
offset or adding an interval may exceed the range of a ``datetime``."""
