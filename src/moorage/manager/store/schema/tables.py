"""Tables of composed listings, as SQLAlchemy Core metadata. All other tables appear only in
statements; ``migrations/baseline/`` defines the schema.

A test compares these tables with the migrated schema.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Float, Integer, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from moorage.manager.store.schema.base import ID, TIME, table

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
        "held_by": [Text()],
        "held_as": [Text()],
        "held_at": [TIME],
        "suspended_attempt": [Integer()],
        "suspended_at": [TIME],
        "suspended_by": [Text()],
        "suspended_left_s": [Float()],
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

pipelines = table(
    "pipelines",
    ("id",),
    {
        "id": ID,
        "name": Text(),
        "project": Text(),
        "owner": Text(),
        "spec": JSONB(),
        "created_at": TIME,
        "created_by": Text(),
        "deadline_at": [TIME],
    },
)

pipeline_steps = table(
    "pipeline_steps",
    ("pipeline_id", "step", "index", "run"),
    {
        "pipeline_id": ID,
        "step": Text(),
        "index": Integer(),
        "run": Integer(),
        "position": Integer(),
        "session_id": ID,
        "at_once": [Integer()],
        "turn": [Text()],
    },
)

audit_log = table(
    "audit_log",
    ("id",),
    {
        "id": BigInteger(),
        "at": TIME,
        "actor": Text(),
        "user_name": Text(),
        "project": Text(),
        "from_address": Text(),
        "request_id": Text(),
        "action": Text(),
        "resource": Text(),
        "name": Text(),
        "status": [Integer()],
        "code": Text(),
        "before": [JSONB()],
        "after": [JSONB()],
    },
)

# A session's place in a pipeline, as ``rows.step_ref`` reads it.
STEP = (
    pipeline_steps.c.pipeline_id,
    pipelines.c.name.label("pipeline_name"),
    pipeline_steps.c.step,
    pipeline_steps.c.index.label("step_index"),
    pipeline_steps.c.run.label("step_run"),
)
