"""An index on the names of agents and proxies that have joined, revoked ones included."""

from alembic import op

revision = "202611281830"
down_revision = "202611281340"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX link_peers_by_name ON link_peers (kind, name)")
