"""Columns of agents about how they are reached, and of managers about which proxies ask for the
other way.

``direct_address``: where proxies try an agent that dials out; "": nowhere. ``reach_why``: why it
dials out. ``undialed``: proxies that it has no connection to, with the reason. ``asks``: by proxy
that tries addresses, the hosts of agents that it would reach the other way.
"""

from alembic import op

revision = "0079"
down_revision = "0078"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE agents ADD COLUMN direct_address text NOT NULL DEFAULT '', "
        "ADD COLUMN reach_why text NOT NULL DEFAULT '', "
        "ADD COLUMN undialed jsonb NOT NULL DEFAULT '{}'"
    )
    op.execute("ALTER TABLE managers ADD COLUMN asks jsonb NOT NULL DEFAULT '{}'")
