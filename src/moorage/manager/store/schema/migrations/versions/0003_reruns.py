"""Requeueing of failed batch sessions, after a backoff.

``reruns`` counts requeues, separately from attempts to start. ``rerun_from`` is the last attempt of
the previous run, so that failures in earlier runs do not exclude agents. ``not_before`` is the end
of the backoff.
"""

from alembic import op

revision = "0003"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE sessions "
        "ADD COLUMN reruns integer NOT NULL DEFAULT 0, "
        "ADD COLUMN rerun_from integer NOT NULL DEFAULT 0, "
        "ADD COLUMN not_before timestamptz, "
        "ADD CONSTRAINT runs_are_attempts CHECK (reruns >= 0 AND rerun_from >= 0 AND rerun_from < "
        "attempt), "
        "ADD CONSTRAINT only_waiting_pauses CHECK (not_before IS NULL OR status = 'PENDING')"
    )
