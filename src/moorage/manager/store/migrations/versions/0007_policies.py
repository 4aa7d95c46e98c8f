"""What the planner must remember between passes, so that the next leader goes on where the last one stopped.

``cursors``: the agent that round-robin chose last, by architecture. ``bypassed``: how often a session that is
blocked was overtaken while it was the head.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE resource_groups ADD COLUMN cursors jsonb NOT NULL DEFAULT '{}'")
    op.execute("ALTER TABLE sessions ADD COLUMN bypassed integer NOT NULL DEFAULT 0 CHECK (bypassed >= 0)")
