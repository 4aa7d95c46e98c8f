"""Doubtful jobs of an agent: for which a site may bill although no kernel is known to run in
them."""

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE agents ADD COLUMN doubtful_jobs jsonb NOT NULL DEFAULT '[]'")
