"""Tables of revisions, load and scaling of endpoints. A part of ``tables``."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Float, Integer, Text
from sqlalchemy.dialects.postgresql import JSONB

from moorage.manager.store.schema.base import ID, TIME, table

endpoint_revisions = table(
    "endpoint_revisions",
    ("endpoint_id", "revision"),
    {
        "endpoint_id": ID,
        "revision": Integer(),
        "spec": JSONB(),
        "created_at": TIME,
        "created_by": Text(),
        "completed_at": [TIME],
        "failed_at": [TIME],
        "reason": Text(),
        "detail": Text(),
        "served_before": [Integer()],
        "target_since": TIME,
    },
)

endpoint_idempotency_keys = table(
    "endpoint_idempotency_keys",
    ("scope", "key"),
    {
        "scope": Text(),
        "key": Text(),
        "request_digest": Text(),
        "endpoint_id": ID,
        "created_at": TIME,
    },
)

proxy_reports = table(
    "proxy_reports",
    ("proxy_id",),
    {
        "proxy_id": Text(),
        "incarnation": Text(),
        "routes_generation": BigInteger(),
        "at": TIME,
        "tells_apps": Boolean(),
        "manager": [ID],
        "address": [Text()],
    },
)

model_loads = table(
    "model_loads",
    ("proxy_id", "model"),
    {
        "proxy_id": Text(),
        "model": Text(),
        "in_flight": Integer(),
        "waiting": Integer(),
        "requests": BigInteger(),
        "active_at": TIME,
        "first_token_ms": [Integer()],
        "replicas": JSONB(),
        "changed_at": TIME,
        "failing": JSONB(),
        "answering": JSONB(),
    },
)

engine_loads = table(
    "engine_loads",
    ("kernel_id",),
    {
        "kernel_id": ID,
        "running": Integer(),
        "waiting": Integer(),
        "kv_cache": [Integer()],
        "changed_at": TIME,
        "max_model_len": [Integer()],
    },
)

scaling_decisions = table(
    "scaling_decisions",
    ("endpoint_id", "number"),
    {
        "endpoint_id": ID,
        "number": Integer(),
        "at": TIME,
        "from_replicas": Integer(),
        "to_replicas": Integer(),
        "rule": Text(),
        "detail": Text(),
        "inputs": JSONB(),
    },
)

kernel_progress = table(
    "kernel_progress",
    ("kernel_id",),
    {
        "kernel_id": ID,
        "fraction": [Float()],
        "step": [BigInteger()],
        "of": [BigInteger()],
        "message": Text(),
        "problem": Text(),
        "at": TIME,
    },
)

kernel_reloads = table(
    "kernel_reloads",
    ("kernel_id",),
    {
        "kernel_id": ID,
        "generation": BigInteger(),
        "requested_by": Text(),
        "requested_at": TIME,
        "ended": BigInteger(),
        "outcome": Text(),
        "detail": Text(),
        "ended_at": [TIME],
    },
)
