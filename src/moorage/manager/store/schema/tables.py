"""The schema as SQLAlchemy Core metadata, from which listings are composed. The migrations create
it.

A test compares this with the migrated schema. Constraints and partial indexes live in the
migrations.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Float, Integer, LargeBinary, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from moorage.manager.store.schema import identity_tables as identity_tables
from moorage.manager.store.schema import idle_tables as idle_tables
from moorage.manager.store.schema import manager_tables as manager_tables
from moorage.manager.store.schema import metering_tables as metering_tables
from moorage.manager.store.schema import occupancy_tables as occupancy_tables
from moorage.manager.store.schema import pipeline_tables as pipeline_tables
from moorage.manager.store.schema import serving_tables as serving_tables
from moorage.manager.store.schema.base import ID, TIME, table
from moorage.manager.store.schema.base import metadata as metadata

resource_groups = table(
    "resource_groups",
    ("name",),
    {
        "name": Text(),
        "options": JSONB(),
        "created_at": TIME,
        "cursors": JSONB(),
        "losses_held_since": [TIME],
        "version": BigInteger(),
        "retired_at": [TIME],
        "changed_at": TIME,
        "changed_by": Text(),
        "renamed_to": [Text()],
    },
)

agents = table(
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
        "connected_at": TIME,
        "last_seen": TIME,
        "max_kernels": [Integer()],
        "share_quantum": Integer(),
        "share_minimum": Integer(),
        "cordon": Text(),
        "cordoned_by": Text(),
        "cordoned_at": [TIME],
        "stop_at": [TIME],
        "draining": Boolean(),
        "report_interval_s": Float(),
        "silence_grace_s": JSONB(),
        "lease_runtimes": ARRAY(Text()),
        "restored_at": [TIME],
        "refuses_orders": Boolean(),
        "unknown_kernels": JSONB(),
        "doubtful_jobs": JSONB(),
        "site_nodes": JSONB(),
        "direct_address": Text(),
        "reach_why": Text(),
        "undialed": JSONB(),
        "not_ready": Text(),
        "ready": Boolean(),
        "manager": [ID],
        "detached_stream": [BigInteger()],
        "assigned_group": [Text()],
        "seen_before": [TIME],
        "back_at": [TIME],
        "configured_group": [Text()],
    },
)

agent_history = table(
    "agent_history",
    ("agent_id", "at"),
    {"agent_id": Text(), "at": TIME, "event": Text(), "actor": Text(), "detail": Text()},
)

agent_slots = table(
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

endpoints = table(
    "endpoints",
    ("id",),
    {
        "id": ID,
        "name": Text(),
        "spec": JSONB(),
        "replicas": Integer(),
        "revision": Integer(),
        "created_by": Text(),
        "owner": Text(),
        "project": Text(),
        "created_at": TIME,
        "changed_at": TIME,
        "deleted_at": [TIME],
        "shared_with": ARRAY(Text()),
        "user_labels": JSONB(),
        "isolated": Boolean(),
        "serving": JSONB(),
        "target_revision": Integer(),
        "canary_of": [Integer()],
        "scaled_at": [TIME],
        "scalings": Integer(),
    },
)

model_names = table("model_names", ("name",), {"name": Text(), "project": Text(), "used_at": TIME})

sessions = table(
    "sessions",
    ("id",),
    {
        "id": ID,
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
        "endpoint_id": [ID],
        "attempt": Integer(),
        "revision": Integer(),
        "created_by": Text(),
        "created_at": TIME,
        "status_since": TIME,
        "deadline_at": [TIME],
        "ready_at": [TIME],
        "retries": Integer(),
        "bypassed": Integer(),
        "requeues": Integer(),
        "requeued_from": Integer(),
        "not_before": [TIME],
        "isolated": Boolean(),
        "owner": Text(),
        "project": Text(),
        "starts_at": [TIME],
        "dependencies": Integer(),
        "hold": [JSONB()],
        "endpoint_revision": [Integer()],
        "draining_since": [TIME],
        "drain_reason": Text(),
        "drain_generation": [BigInteger()],
        "template": [Text()],
        "user_labels": JSONB(),
        "request_hash": [Text()],
        "adopted_from": [ID],
        "files": [JSONB()],
        "removed_at": [TIME],
        "traceparent": [Text()],
    },
)

kernels = table(
    "kernels",
    ("id",),
    {
        "id": ID,
        "session_id": ID,
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
        "status_since": TIME,
        "cluster_role": Text(),
        "cluster_index": Integer(),
        "overlap": Boolean(),
        "lease_s": [Float()],
        "unhealthy_since": [TIME],
        "unhealthy_detail": Text(),
        "kept_until": [TIME],
        "expected_start": [TIME],
        "ends_at": [TIME],
        "started_at": [TIME],
        "running_at": [TIME],
    },
)

templates = table(
    "templates",
    ("project", "name", "version"),
    {
        "project": Text(),
        "name": Text(),
        "version": Integer(),
        "body": JSONB(),
        "bases": ARRAY(Text()),
        "created_at": TIME,
        "created_by": Text(),
        "deleted_at": [TIME],
        "isolated": Boolean(),
    },
)

session_keys = table(
    "session_keys", ("session_id",), {"session_id": ID, "private_key": Text(), "public_key": Text()}
)

allocations = table(
    "allocations",
    ("kernel_id", "slot", "device_id"),
    {
        "kernel_id": ID,
        "agent_id": Text(),
        "slot": Text(),
        "device_id": Text(),
        "amount": BigInteger(),
        "taken_at": TIME,
        "released_at": [TIME],
    },
)

service_ports = table(
    "service_ports",
    ("agent_id", "port"),
    {
        "agent_id": Text(),
        "port": Integer(),
        "kernel_id": ID,
        "name": Text(),
        "protocol": Text(),
        "base_path": Boolean(),
        "guarded": Boolean(),
        "host": Text(),
    },
)

access_tokens = table(
    "access_tokens",
    ("id",),
    {
        "id": ID,
        "session_id": ID,
        "app": Text(),
        "prefix": Text(),
        "sha256": Text(),
        "created_at": TIME,
        "created_by": Text(),
        "expires_at": TIME,
        "revoked_at": [TIME],
        "revoked_by": Text(),
        "user_name": [Text()],
        "key_id": [ID],
    },
)

session_history = table(
    "session_history",
    ("session_id", "revision"),
    {
        "session_id": ID,
        "revision": Integer(),
        "at": TIME,
        "event": Text(),
        "from_status": [Text()],
        "to_status": Text(),
        "reason": Text(),
        "actor": Text(),
        "detail": Text(),
    },
)

session_dependencies = table(
    "session_dependencies",
    ("session_id", "depends_on", "condition"),
    {"session_id": ID, "depends_on": ID, "condition": Text()},
)

quotas = table(
    "quotas",
    ("scope", "name"),
    {
        "scope": Text(),
        "name": Text(),
        "slots": JSONB(),
        "sessions": [Integer()],
        "pending": [Integer()],
        "node_seconds": [BigInteger()],
        "system_sessions": [Integer()],
        "changed_at": TIME,
        "changed_by": Text(),
        "version": BigInteger(),
    },
)

idempotency_keys = table(
    "idempotency_keys",
    ("scope", "key"),
    {
        "scope": Text(),
        "key": Text(),
        "request_digest": Text(),
        "session_id": ID,
        "created_at": TIME,
    },
)

decisions = table(
    "decisions",
    ("id",),
    {
        "id": BigInteger(),
        "resource_group": Text(),
        "from_at": TIME,
        "to_at": TIME,
        "term": BigInteger(),
        "run": ID,
        "number": Integer(),
        "format": Integer(),
        "whole": Boolean(),
        "passes": Integer(),
        "dropped": Integer(),
        "size": Integer(),
        "body": LargeBinary(),
    },
)

expected_starts = table(
    "expected_starts",
    ("session_id", "attempt", "expected_at"),
    {
        "session_id": ID,
        "attempt": Integer(),
        "expected_at": TIME,
        "told_at": TIME,
        "kind": Text(),
        "resource_group": Text(),
        "outcome": Text(),
        "started_at": [TIME],
    },
)

_USE = {"cpu": BigInteger(), "memory": BigInteger(), "rx": [BigInteger()], "tx": [BigInteger()]}
_USE |= {"gpu": [BigInteger()], "gpu_memory": [BigInteger()]}
_PEAKS = {f"{name}_peak": kind for name, kind in _USE.items()}

kernel_usage = table("kernel_usage", ("kernel_id",), {"kernel_id": ID, "at": TIME, **_USE})

kernel_usage_spans = table(
    "kernel_usage_spans",
    ("kernel_id", "seconds", "at"),
    {"kernel_id": ID, "seconds": Integer(), "at": TIME, "samples": Integer(), **_USE, **_PEAKS},
)

agent_usage = table(
    "agent_usage",
    ("agent_id",),
    {
        "agent_id": Text(),
        "at": TIME,
        "cpu": BigInteger(),
        "memory": BigInteger(),
        "devices": JSONB(),
    }
    | {f"kernels_{name}": BigInteger() for name in ("cpu", "memory", "gpu", "gpu_memory")},
)
