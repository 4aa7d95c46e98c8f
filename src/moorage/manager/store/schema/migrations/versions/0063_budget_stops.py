"""An index of the budgets at a limit: every request for a new session, and every read of routes and
replicas, looks for them."""

from alembic import op

revision = "0063"
down_revision = "0062"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX budgets_reached ON budgets (resets_at) WHERE level <> 'ok'")
