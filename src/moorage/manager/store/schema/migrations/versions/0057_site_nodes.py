"""Nodes of the sites of agents: how many there are, and how many are in use."""

from alembic import op

revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE agents ADD COLUMN site_nodes jsonb NOT NULL DEFAULT '[]'")
