"""Sessions that share the run of an equal one.

``adopted_from``: the session whose run it shares. It waits for that one by a dependency with the
condition "adopted", so that the scheduler leaves it alone. No two sessions that others may share
run at once: the index decides between equal requests that arrive at the same moment.
"""

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE sessions ADD COLUMN request_hash text CHECK (request_hash ~ "
        "'^[0-9a-f]{64}$'), "
        "ADD COLUMN adopted_from uuid REFERENCES sessions ON DELETE SET NULL, "
        "ADD CONSTRAINT only_batch_is_adopted CHECK (adopted_from IS NULL OR type = 'batch'), "
        "ADD CONSTRAINT adopted_by_itself CHECK (adopted_from <> id)"
    )
    op.execute(
        "CREATE UNIQUE INDEX sessions_shared_run ON sessions (project, request_hash) "
        "WHERE request_hash IS NOT NULL AND adopted_from IS NULL AND (spec ->> 'reuse') IN "
        "('live', 'both') "
        "AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR', 'TERMINATING')"
    )
    op.execute(
        "CREATE INDEX sessions_by_request ON sessions (project, request_hash, created_at) "
        "WHERE request_hash IS NOT NULL AND adopted_from IS NULL"
    )
    op.execute(
        "CREATE INDEX sessions_adopted ON sessions (adopted_from) WHERE adopted_from IS NOT NULL"
    )
    op.execute(
        "ALTER TABLE session_dependencies DROP CONSTRAINT session_dependencies_condition_check, "
        "ADD CONSTRAINT session_dependencies_condition_check "
        "CHECK (condition IN ('success', 'any', 'failure', 'adopted'))"
    )
