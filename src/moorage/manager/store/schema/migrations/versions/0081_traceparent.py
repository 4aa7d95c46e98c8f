"""The span below which the start of a session is traced, as in the header ``traceparent``."""

from alembic import op

revision = "0081"
down_revision = "0080"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN traceparent text")
