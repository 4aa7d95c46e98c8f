"""Partial indexes of live sessions, so that reading those costs the same however many have
ended."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX sessions_running ON sessions (id) WHERE status = 'RUNNING'")
    op.execute(
        "CREATE INDEX sessions_live_newest ON sessions (created_at DESC, id DESC) "
        "WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')"
    )
