"""Sessions whose record was removed by a user: nobody is shown them; retention deletes them as all
others."""

from alembic import op

revision = "0075"
down_revision = "0074"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE sessions ADD COLUMN removed_at timestamptz, ADD CONSTRAINT "
        "sessions_removed_have_ended "
        "CHECK (removed_at IS NULL OR status IN ('TERMINATED', 'CANCELLED', 'ERROR')) NOT VALID"
    )
    op.execute("ALTER TABLE sessions VALIDATE CONSTRAINT sessions_removed_have_ended")
