"""Who sends secrets to a manager over loopback without TLS: names of agents, proxies and keys, by
kind."""

from alembic import op

revision = "202611272025"
down_revision = "202611271820"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE managers ADD COLUMN plain_senders jsonb NOT NULL DEFAULT '{}'")
