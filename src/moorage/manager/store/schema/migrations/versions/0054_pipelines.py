"""Pipelines: graphs of sessions. The state of one is derived from its steps, and stored nowhere.

A retry gives a step another run, so ``(pipeline_id, step, index, run)`` decides between two retries
at once. ``index``: of an element of an array, else -1.
"""

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE TABLE pipelines (id uuid PRIMARY KEY, name text NOT NULL CHECK (name <> ''), "
        "project text NOT NULL, owner text NOT NULL, spec jsonb NOT NULL, "
        "created_at timestamptz NOT NULL DEFAULT now(), created_by text NOT NULL)"
    )
    op.execute("CREATE INDEX pipelines_of_project ON pipelines (project, name, created_at DESC)")
    op.execute("CREATE INDEX pipelines_newest ON pipelines (created_at DESC, id DESC)")
    op.execute(
        "CREATE TABLE pipeline_steps ("
        "pipeline_id uuid NOT NULL REFERENCES pipelines ON DELETE CASCADE, "
        "step text NOT NULL, index integer NOT NULL CHECK (index >= -1), "
        "run integer NOT NULL CHECK (run > 0), "
        "position integer NOT NULL, session_id uuid NOT NULL UNIQUE REFERENCES sessions ON DELETE "
        "CASCADE, "
        "PRIMARY KEY (pipeline_id, step, index, run))"
    )
