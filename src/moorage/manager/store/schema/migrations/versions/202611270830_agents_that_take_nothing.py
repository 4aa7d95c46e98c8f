"""Agents that say why they take no new work, such as a full disk of their state (``not_ready``).

``ready`` follows from ``refuses_orders``, which is stored of such an agent, too: managers of the
release before know that column, and place nothing there either.
"""

from alembic import op

revision = "202611270830"
down_revision = "202611270810"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE agents ADD COLUMN not_ready text NOT NULL DEFAULT ''")
