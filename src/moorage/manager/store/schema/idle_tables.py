"""Tables of idle criteria: traffic of sessions, and observations about them. A part of
``tables``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, Integer, Text
from sqlalchemy.dialects.postgresql import JSONB

from moorage.manager.store.schema.base import ID, TIME, table

session_traffic = table(
    "session_traffic", ("session_id",), {"session_id": ID, "sightings": BigInteger(), "at": TIME}
)

session_idle = table(
    "session_idle",
    ("session_id",),
    {
        "session_id": ID,
        "attempt": Integer(),
        "observed_s": Float(),
        "traffic_s": Float(),
        "sightings": BigInteger(),
        "warned_s": [Float()],
        "extended_s": Float(),
        "extensions": Integer(),
        "remaining": JSONB(),
        "criterion": Text(),
        "ends_in_s": [Float()],
        "at": TIME,
    },
)
