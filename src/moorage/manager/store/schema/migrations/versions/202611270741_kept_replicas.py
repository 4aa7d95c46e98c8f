"""Replicas that cannot be reached: how long they are kept."""

from alembic import op

revision = "202611270741"
down_revision = "202611270501"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE kernels ADD COLUMN kept_until timestamptz")
