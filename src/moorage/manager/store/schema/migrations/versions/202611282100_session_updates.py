"""Holds and suspensions of sessions, and the runtimes of agents that can suspend kernels.

A session is suspended while it is RUNNING in the attempt `suspended_attempt`. A manager of the
previous release that starts a new attempt therefore leaves no suspension behind, although it does
not know the column.
"""

from alembic import op

revision = "202611282100"
down_revision = "202611281840"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE sessions "
        "ADD COLUMN held_by text, "
        "ADD COLUMN held_as text CHECK (held_as IN ('owner', 'project-admin', 'admin')), "
        "ADD COLUMN held_at timestamptz, "
        "ADD COLUMN suspended_attempt integer, "
        "ADD COLUMN suspended_at timestamptz, "
        "ADD COLUMN suspended_by text, "
        "ADD COLUMN suspended_left_s float8, "
        "ADD CONSTRAINT holds_are_complete CHECK ("
        "(held_by IS NULL) = (held_as IS NULL) AND (held_by IS NULL) = (held_at IS NULL)), "
        # A manager of the previous release cancels a held session without releasing it.
        "ADD CONSTRAINT no_held_session_is_placed CHECK (held_by IS NULL "
        "OR status IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')), "
        "ADD CONSTRAINT suspensions_are_complete CHECK ("
        "(suspended_attempt IS NULL) = (suspended_at IS NULL) "
        "AND (suspended_attempt IS NULL) = (suspended_by IS NULL))"
    )
    op.execute("ALTER TABLE agents ADD COLUMN suspend_runtimes text[] NOT NULL DEFAULT '{}'")
