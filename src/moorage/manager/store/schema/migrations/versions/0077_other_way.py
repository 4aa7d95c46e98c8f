"""Column ``other_way`` of managers: hosts of agents that their proxies would reach the other way,
directly or by connections of the agents, once for each proxy."""

from alembic import op

revision = "0077"
down_revision = "0076"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE managers ADD COLUMN other_way text[] NOT NULL DEFAULT '{}'")
