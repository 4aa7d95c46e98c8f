"""Tables of pipelines."""

from __future__ import annotations

from sqlalchemy import Integer, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from moorage.manager.store.schema.base import ID, TIME, table

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
    },
)

session_stops = table(
    "session_stops",
    ("id",),
    {
        "id": ID,
        "pipeline_id": [ID],
        "owner": [Text()],
        "projects": [ARRAY(Text())],
        "asked_at": TIME,
        "asked_by": Text(),
    },
)

# Place of a session in a pipeline, as ``rows.step_ref`` reads it.
STEP = (
    pipeline_steps.c.pipeline_id,
    pipelines.c.name.label("pipeline_name"),
    pipeline_steps.c.step,
    pipeline_steps.c.index.label("step_index"),
    pipeline_steps.c.run.label("step_run"),
)
