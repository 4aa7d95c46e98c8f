"""Tables of the occupancy and the queues of resource groups over time. A part of ``tables``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Float, Integer, Text

from moorage.manager.store.schema.base import TIME, table

_SPAN = {"resource_group": Text(), "seconds": Integer(), "at": TIME, "samples": Integer()}

occupancy_spans = table(
    "occupancy_spans",
    ("resource_group", "seconds", "at", "slot"),
    {**_SPAN, "slot": Text(), "capacity": Float(), "used": Float(), "used_peak": BigInteger()},
)

queue_spans = table(
    "queue_spans",
    ("resource_group", "seconds", "at"),
    {**_SPAN, "pending": Float(), "pending_peak": Integer(), "running": Float()},
)
