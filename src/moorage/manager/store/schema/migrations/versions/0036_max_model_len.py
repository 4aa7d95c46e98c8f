"""Context of replicas, as their engines say: the most tokens of a prompt with its answer."""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE engine_loads ADD COLUMN max_model_len integer CHECK (max_model_len > 0)"
    )
