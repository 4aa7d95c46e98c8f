"""Outputs of steps: what a session leaves to later ones of its pipeline, and what it takes from
earlier ones.

Of other sessions it is NULL, so the column costs nothing.
"""

from alembic import op

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN files jsonb")
