"""The schema as SQLAlchemy Core metadata: what listings are composed from. The migrations make it.

A test holds this and the migrated schema equal. Constraints and partial indexes live in the migrations.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP, UUID

metadata = MetaData()
_TZ = TIMESTAMP(timezone=True)
_ID = UUID(as_uuid=False)


def _table(name: str, key: tuple[str, ...], columns: dict[str, Any]) -> Table:
    """Columns by type; ``[type]`` marks a nullable one."""
    made: list[Column[Any]] = []
    for column, kind in columns.items():
        nullable = isinstance(kind, list)
        made.append(
            Column(column, kind[0] if nullable else kind, primary_key=column in key, nullable=nullable)
        )
    return Table(name, metadata, *made)


resource_groups = _table(
    "resource_groups",
    ("name",),
    {
        "name": Text(),
        "options": JSONB(),
        "created_at": _TZ,
        "cursors": JSONB(),
        "losses_held_since": [_TZ],
    },
)

api_keys = _table(
    "api_keys",
    ("id",),
    {
        "id": _ID,
        "name": Text(),
        "role": Text(),
        "owner": Text(),
        "project": Text(),
        "prefix": Text(),
        "sha256": Text(),
        "created_at": _TZ,
        "expires_at": [_TZ],
        "revoked_at": [_TZ],
        "last_used_at": [_TZ],
        "created_by": Text(),
        "revoked_by": Text(),
    },
)

_READINESS = {"restored_at": [_TZ], "refuses_orders": Boolean(), "unknown_kernels": JSONB()}
_READINESS |= {"ready": Boolean(), "manager": [_ID], "detached_stream": [BigInteger()]}
agents = _table(
    "agents",
    ("id",),
    {
        "id": Text(),
        "resource_group": Text(),
        "status": Text(),
        "identity": Text(),
        "incarnation": Text(),
        "stream": BigInteger(),
        "address": Text(),
        "version": Text(),
        "arch": Text(),
        "runtimes": ARRAY(Text()),
        "engines": ARRAY(Text()),
        "labels": JSONB(),
        "leaving": Boolean(),
        "connected_at": _TZ,
        "last_seen": _TZ,
        "max_kernels": [Integer()],
        "share_quantum": Integer(),
        "share_minimum": Integer(),
        "cordon": Text(),
        "cordoned_by": Text(),
        "cordoned_at": [_TZ],
        "stop_at": [_TZ],
        "draining": Boolean(),
        "report_interval_s": Float(),
        "silence_grace_s": JSONB(),
        "lease_runtimes": ARRAY(Text()),
        **_READINESS,
    },
)

_MANAGER = {"id": _ID, "link": Text(), "version": Text(), "beat": BigInteger(), "proxies": ARRAY(Text())}
managers = _table("managers", ("id",), _MANAGER | {"started_at": _TZ})

agent_history = _table(
    "agent_history",
    ("agent_id", "at"),
    {"agent_id": Text(), "at": _TZ, "event": Text(), "actor": Text(), "detail": Text()},
)

agent_slots = _table(
    "agent_slots",
    ("agent_id", "slot", "device_id"),
    {
        "agent_id": Text(),
        "slot": Text(),
        "device_id": Text(),
        "model": Text(),
        "memory_bytes": BigInteger(),
        "healthy": Boolean(),
        "offered": BigInteger(),
        "capacity": BigInteger(),
        "used": BigInteger(),
        "numa": [Integer()],
        "nvlink_domain": Text(),
        "parent": Text(),
        "unhealthy_reason": Text(),
    },
)

endpoints = _table(
    "endpoints",
    ("id",),
    {
        "id": _ID,
        "name": Text(),
        "spec": JSONB(),
        "replicas": Integer(),
        "revision": Integer(),
        "created_by": Text(),
        "owner": Text(),
        "project": Text(),
        "created_at": _TZ,
        "changed_at": _TZ,
        "deleted_at": [_TZ],
    },
)

secrets = _table(
    "secrets",
    ("project", "name"),
    {
        "project": Text(),
        "name": Text(),
        "version": BigInteger(),
        "key_id": Text(),
        "sealed": LargeBinary(),
        "created_at": _TZ,
        "created_by": Text(),
        "changed_at": _TZ,
        "changed_by": Text(),
        "deleted_at": [_TZ],
    },
)

sessions = _table(
    "sessions",
    ("id",),
    {
        "id": _ID,
        "name": Text(),
        "type": Text(),
        "status": Text(),
        "result": Text(),
        "reason": Text(),
        "detail": Text(),
        "resource_group": Text(),
        "priority": Integer(),
        "spec": JSONB(),
        "slots": JSONB(),
        "endpoint_id": [_ID],
        "attempt": Integer(),
        "revision": Integer(),
        "created_by": Text(),
        "created_at": _TZ,
        "status_since": _TZ,
        "deadline_at": [_TZ],
        "ready_at": [_TZ],
        "retries": Integer(),
        "bypassed": Integer(),
        "requeues": Integer(),
        "requeued_from": Integer(),
        "not_before": [_TZ],
        "owner": Text(),
        "project": Text(),
        "starts_at": [_TZ],
        "dependencies": Integer(),
        "hold": [JSONB()],
    },
)

kernels = _table(
    "kernels",
    ("id",),
    {
        "id": _ID,
        "session_id": _ID,
        "hostname": Text(),
        "attempt": Integer(),
        "status": Text(),
        "agent_id": [Text()],
        "secret": Text(),
        "observed": [Text()],
        "host": Text(),
        "port": Integer(),
        "exit_code": [Integer()],
        "reason": Text(),
        "detail": Text(),
        "log_tail": Text(),
        "status_since": _TZ,
        "cluster_role": Text(),
        "cluster_index": Integer(),
        "overlap": Boolean(),
        "lease_s": [Float()],
    },
)

session_keys = _table(
    "session_keys", ("session_id",), {"session_id": _ID, "private_key": Text(), "public_key": Text()}
)

allocations = _table(
    "allocations",
    ("kernel_id", "slot", "device_id"),
    {
        "kernel_id": _ID,
        "agent_id": Text(),
        "slot": Text(),
        "device_id": Text(),
        "amount": BigInteger(),
        "taken_at": _TZ,
        "released_at": [_TZ],
    },
)

service_ports = _table(
    "service_ports",
    ("agent_id", "port"),
    {
        "agent_id": Text(),
        "port": Integer(),
        "kernel_id": _ID,
        "name": Text(),
        "protocol": Text(),
        "base_path": Boolean(),
        "guarded": Boolean(),
        "host": Text(),
    },
)

access_tokens = _table(
    "access_tokens",
    ("id",),
    {
        "id": _ID,
        "session_id": _ID,
        "app": Text(),
        "prefix": Text(),
        "sha256": Text(),
        "created_at": _TZ,
        "created_by": Text(),
        "expires_at": _TZ,
        "revoked_at": [_TZ],
        "revoked_by": Text(),
    },
)

session_history = _table(
    "session_history",
    ("session_id", "revision"),
    {
        "session_id": _ID,
        "revision": Integer(),
        "at": _TZ,
        "event": Text(),
        "from_status": [Text()],
        "to_status": Text(),
        "reason": Text(),
        "actor": Text(),
        "detail": Text(),
    },
)

session_dependencies = _table(
    "session_dependencies",
    ("session_id", "depends_on", "condition"),
    {"session_id": _ID, "depends_on": _ID, "condition": Text()},
)

quotas = _table(
    "quotas",
    ("scope", "name"),
    {
        "scope": Text(),
        "name": Text(),
        "slots": JSONB(),
        "sessions": [Integer()],
        "pending": [Integer()],
        "changed_at": _TZ,
        "changed_by": Text(),
    },
)

leases = _table(
    "leases",
    ("name",),
    {
        "name": Text(),
        "holder": Text(),
        "term": BigInteger(),
        "expires_at": _TZ,
        "clock_jumps": Integer(),
    },
)

idempotency_keys = _table(
    "idempotency_keys",
    ("scope", "key"),
    {"scope": Text(), "key": Text(), "request_digest": Text(), "session_id": _ID, "created_at": _TZ},
)

decisions = _table(
    "decisions",
    ("id",),
    {
        "id": BigInteger(),
        "resource_group": Text(),
        "from_at": _TZ,
        "to_at": _TZ,
        "term": BigInteger(),
        "run": _ID,
        "number": Integer(),
        "format": Integer(),
        "whole": Boolean(),
        "passes": Integer(),
        "dropped": Integer(),
        "size": Integer(),
        "body": LargeBinary(),
    },
)

expected_starts = _table(
    "expected_starts",
    ("session_id", "attempt", "expected_at"),
    {
        "session_id": _ID,
        "attempt": Integer(),
        "expected_at": _TZ,
        "told_at": _TZ,
        "kind": Text(),
        "resource_group": Text(),
        "outcome": Text(),
        "started_at": [_TZ],
    },
)

_USE = {"cpu": BigInteger(), "memory": BigInteger(), "rx": [BigInteger()], "tx": [BigInteger()]}
_USE |= {"gpu": [BigInteger()], "gpu_memory": [BigInteger()]}
_PEAKS = {f"{name}_peak": kind for name, kind in _USE.items()}

kernel_usage = _table("kernel_usage", ("kernel_id",), {"kernel_id": _ID, "at": _TZ, **_USE})

kernel_usage_spans = _table(
    "kernel_usage_spans",
    ("kernel_id", "seconds", "at"),
    {"kernel_id": _ID, "seconds": Integer(), "at": _TZ, "samples": Integer(), **_USE, **_PEAKS},
)

agent_usage = _table(
    "agent_usage",
    ("agent_id",),
    {"agent_id": Text(), "at": _TZ, "cpu": BigInteger(), "memory": BigInteger(), "devices": JSONB()},
)

link_authority = _table(
    "link_authority", ("name",), {"name": Text(), "certificate": Text(), "key": Text(), "created_at": _TZ}
)

join_tokens = _table(
    "join_tokens",
    ("id",),
    {
        "id": _ID,
        "verifier": Text(),
        "kind": Text(),
        "resource_group": [Text()],
        "uses": Integer(),
        "used": Integer(),
        "expires_at": _TZ,
        "created_at": _TZ,
        "created_by": Text(),
        "removed_at": [_TZ],
        "removed_by": Text(),
    },
)

link_peers = _table(
    "link_peers",
    ("id",),
    {
        "id": _ID,
        "kind": Text(),
        "name": Text(),
        "resource_group": [Text()],
        "token_id": [_ID],
        "public_key": Text(),
        "joined_at": _TZ,
        "certificate_until": _TZ,
        "revoked_at": [_TZ],
        "revoked_by": Text(),
    },
)
