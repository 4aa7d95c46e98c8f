"""What proxies say of the replicas of their models: which fail everybody who asks, and which
answer."""

from alembic import op

revision = "202611270810"
down_revision = "202611270750"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE model_loads ADD COLUMN failing jsonb NOT NULL DEFAULT '{}'")
    op.execute("ALTER TABLE model_loads ADD COLUMN answering jsonb NOT NULL DEFAULT '[]'")
