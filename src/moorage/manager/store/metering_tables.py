"""Tables of limits and usage of models. A part of ``tables``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Text
from sqlalchemy.dialects.postgresql import JSONB

from moorage.manager.store.schema import TIME, table

limit_shares = table(
    "limit_shares", ("subject",), {"subject": Text(), "revision": BigInteger(), "shares": JSONB()}
)

_PAYER = ("project", "username", "key_id", "model")
_REPLICA = ("session_id", "endpoint", "resource_group")
_AMOUNTS = ("requests", "tokens_in", "tokens_out", "tokens_cached")

usage_records = table(
    "usage_records",
    ("source", "epoch", "sequence"),
    {"source": Text(), "epoch": Text(), "sequence": BigInteger(), "began_at": TIME, "ended_at": TIME}
    | {name: Text() for name in _PAYER}
    | {name: BigInteger() for name in _AMOUNTS}
    | {"stored_at": TIME}
    | {name: Text() for name in _REPLICA},
)

usage_hours = table(
    "usage_hours",
    ("at", *_PAYER, *_REPLICA),
    {"at": TIME}
    | {name: Text() for name in (*_PAYER, *_REPLICA)}
    | {name: BigInteger() for name in _AMOUNTS},
)

usage_epochs = table(
    "usage_epochs",
    ("source", "epoch"),
    {"source": Text(), "epoch": Text(), "sequence": BigInteger(), "at": TIME},
)
