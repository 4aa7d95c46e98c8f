"""Drops the index with which managers two releases ago found the sessions of sites: today's index is
``sessions_of_site_jobs``."""

from alembic import op

revision = "202611272345"
down_revision = "202611272025"
branch_labels = None
depends_on = None
functions = "af67b1b457b35192"


def upgrade() -> None:
    op.execute("DROP INDEX sessions_of_site")
