"""Whether the processes of a session or endpoint must be isolated from the user of the agent,
because its owner is no administrator.

What exists already, and what the previous release creates during an upgrade, keeps its place.
"""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("sessions", "endpoints"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN isolated boolean NOT NULL DEFAULT false")
