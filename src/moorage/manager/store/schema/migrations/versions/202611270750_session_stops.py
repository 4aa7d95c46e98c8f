"""Stops of many sessions that were asked for: a loop of the leader carries them out, whatever
happens to the request."""

from alembic import op

revision = "202611270750"
down_revision = "202611270741"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE session_stops (
            id uuid PRIMARY KEY,
            pipeline_id uuid UNIQUE REFERENCES pipelines (id) ON DELETE CASCADE,
            owner text,
            projects text[],
            asked_at timestamptz NOT NULL DEFAULT now(),
            asked_by text NOT NULL,
            CONSTRAINT session_stops_of_one_kind CHECK (num_nonnulls(pipeline_id, owner) = 1)
        )
    """)
