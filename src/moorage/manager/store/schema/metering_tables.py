"""Tables of limits and usage of models. A part of ``tables``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Numeric, Text
from sqlalchemy.dialects.postgresql import JSONB

from moorage.manager.store.schema.base import ID, TIME, table

limit_shares = table(
    "limit_shares", ("subject",), {"subject": Text(), "revision": BigInteger(), "shares": JSONB()}
)

_PAYER = ("project", "username", "key_id", "model")
_REPLICA = ("session_id", "endpoint", "resource_group")
_AMOUNTS = ("requests", "tokens_in", "tokens_out", "tokens_cached")

usage_records = table(
    "usage_records",
    ("source", "epoch", "sequence"),
    {
        "source": Text(),
        "epoch": Text(),
        "sequence": BigInteger(),
        "began_at": TIME,
        "ended_at": TIME,
    }
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

_UNIT = {"unit": Text(), "device": Text()}
_LEDGER_PAYER = (*_PAYER, "endpoint", "resource_group")

ledger = table(
    "ledger",
    ("id",),
    {"id": BigInteger(), "kernel_id": [ID], **_UNIT, "rate": BigInteger(), "amount": BigInteger()}
    | {"began_at": TIME, "ended_at": TIME}
    | {name: Text() for name in (*_LEDGER_PAYER, "session_id", "reason", "actor")}
    | {"at": TIME},
)

ledger_months = table(
    "ledger_months",
    ("at", *_LEDGER_PAYER, *_UNIT),
    {"at": TIME, **_UNIT} | {name: Text() for name in _LEDGER_PAYER} | {"amount": Numeric()},
)

_CHANGED = {"changed_at": TIME, "changed_by": Text()}

prices = table(
    "prices",
    ("unit", "device", "resource_group", "since"),
    {**_UNIT, "resource_group": Text(), "since": TIME, "price": BigInteger(), **_CHANGED},
)

budget_alerts = table(
    "budget_alerts",
    ("id",),
    {"id": BigInteger(), **{name: Text() for name in ("scope", "name", "unit", "period")}}
    | {
        "resets_at": TIME,
        "level": Text(),
        "threshold": BigInteger(),
        "used": BigInteger(),
        "at": TIME,
    },
)

budgets = table(
    "budgets",
    ("scope", "name", "unit", "period"),
    {name: Text() for name in ("scope", "name", "unit", "period", "policy", "level")}
    | {"soft": [BigInteger()], "hard": [BigInteger()], "used": BigInteger()}
    | {"resets_at": TIME, "measured_at": [TIME], **_CHANGED},
)
