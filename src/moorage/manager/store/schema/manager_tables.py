"""Tables of the managers of a database: their signs of life, the leader's lease, the lineage of the
database, and its backups."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Float, Integer, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from moorage.manager.store.schema.base import ID, TIME, table

managers = table(
    "managers",
    ("id",),
    {
        "id": ID,
        "link": Text(),
        "version": Text(),
        "beat": BigInteger(),
        "proxies": ARRAY(Text()),
        "started_at": TIME,
        "agent_links": [Integer()],
        "proxy_links": [Integer()],
        "clock_ahead_s": [Float()],
        "dialout": ARRAY(Text()),
        "other_way": ARRAY(Text()),
        "asks": JSONB(),
        "plain_senders": JSONB(),
    },
)

leases = table(
    "leases",
    ("name",),
    {
        "name": Text(),
        "holder": Text(),
        "schema": [Text()],
        "term": BigInteger(),
        "expires_at": TIME,
        "clock_jumps": Integer(),
    },
)

lineage = table(
    "lineage",
    ("only_row",),
    {
        "only_row": Boolean(),
        "system": Text(),
        "timeline": Integer(),
        "since": TIME,
        "failovers": Integer(),
        "installation": ID,
        "copy": ID,
    },
)

schema_compatibility = table(
    "schema_compatibility",
    ("only_row",),
    {"only_row": Boolean(), "compatible_since": Text(), "leads_since": Text()},
)

replaced_kernels = table("replaced_kernels", ("id",), {"id": ID, "kernel_id": ID})

backups = table(
    "backups",
    ("at",),
    {"at": TIME, "file": Text(), "host": Text(), "bytes": BigInteger(), "tested_at": [TIME]},
)
