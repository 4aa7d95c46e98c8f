"""Priorities that keys may ask for beyond the ceiling of their role, since they are older than
ceilings.

A key that had no highest priority keeps any. New ones keep none, also where a manager of the
release before makes them.
"""

from alembic import op

revision = "202611271045"
down_revision = "202611271040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE api_keys ADD COLUMN kept_priority integer CHECK (kept_priority BETWEEN 0 AND "
        "100)"
    )
    op.execute(
        "UPDATE api_keys SET kept_priority = coalesce(max_priority, 100) WHERE revoked_at IS NULL"
    )
