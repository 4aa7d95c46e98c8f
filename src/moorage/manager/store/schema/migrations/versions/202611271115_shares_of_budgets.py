"""Shares of budgets: what is left of a hard limit of requests or tokens is divided among the
proxies, too."""

from alembic import op

revision = "202611271115"
down_revision = "202611271045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE limit_shares DROP CONSTRAINT limit_shares_subject_check")
    op.execute(
        "ALTER TABLE limit_shares ADD CONSTRAINT limit_shares_subject_check "
        "CHECK (subject ~ '^(key|project|model|budget)/')"
    )
