"""Whether who registered a public key for SSH has proved to hold its private half.

Those of before stay valid without it, and so do those that a manager of the release before
registers. They give way to whoever proves it.
"""

from alembic import op

revision = "202611271810"
down_revision = "202611271800"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE user_ssh_keys ADD COLUMN proved boolean NOT NULL DEFAULT false")
