"""The reason for which a device is unhealthy, as its agent reports it."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE agent_slots ADD COLUMN trouble text NOT NULL DEFAULT ''")
