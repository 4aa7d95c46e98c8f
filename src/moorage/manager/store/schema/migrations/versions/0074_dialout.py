"""Column ``dialout`` of managers: where their proxies take the connections of agents that only dial
out."""

from alembic import op

revision = "0074"
down_revision = "0073"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE managers ADD COLUMN dialout text[] NOT NULL DEFAULT '{}'")
