"""Planner state that must survive a change of the leader.

``cursors``: the agent that round-robin chose last, by architecture. ``bypassed``: how often a
blocked session was overtaken while it was first in the queue.
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE resource_groups ADD COLUMN cursors jsonb NOT NULL DEFAULT '{}'")
    op.execute(
        "ALTER TABLE sessions ADD COLUMN bypassed integer NOT NULL DEFAULT 0 CHECK (bypassed >= 0)"
    )
