"""Timestamps in requests: impossible years are refused, whatever their offset."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import TypeAdapter, ValidationError

from moorage.common.model.timestamps import Timestamp

READER = TypeAdapter(Timestamp)


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+14:00",  # before a datetime's first year once it is in UTC
        "9999-12-31T23:59:59-12:00",  # after the last one
        "9999-12-31T23:30:00Z",  # its next full hour does not exist
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
    ],
)
def test_years_outside_of_what_a_clock_shows_are_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="1970 to 2999"):
        READER.validate_python(text)


def test_a_time_is_in_utc_from_then_on() -> None:
    assert READER.validate_python("1970-01-01T01:30:00+01:00") == datetime(
        1970, 1, day=1, hour=0, minute=30, tzinfo=UTC
    )
    assert READER.validate_python("1970-01-01T01:30:00+01:00").tzinfo is UTC
