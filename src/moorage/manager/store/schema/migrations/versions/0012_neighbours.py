"""Topology of devices, which the planner uses to keep the devices of a kernel together."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE agent_slots ADD COLUMN numa integer CHECK (numa >= 0), "
        "ADD COLUMN island text NOT NULL DEFAULT '', ADD COLUMN parent text NOT NULL DEFAULT ''"
    )
