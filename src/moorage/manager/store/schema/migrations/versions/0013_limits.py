"""Limits of agents: the number of live kernels, and the shares into which devices are divided."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE agents ADD COLUMN max_kernels integer CHECK (max_kernels > 0), "
        "ADD COLUMN share_quantum integer NOT NULL DEFAULT 1 CHECK (share_quantum BETWEEN 1 AND "
        "1000), "
        "ADD COLUMN share_minimum integer NOT NULL DEFAULT 1 CHECK (share_minimum BETWEEN 1 AND "
        "1000)"
    )
