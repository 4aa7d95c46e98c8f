"""User labels of sessions and endpoints, and what listings are sorted by.

Most sessions have no labels, so the index leaves them out and a change of their status does not
touch it.
"""

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("sessions", "endpoints"):
        op.execute(
            f"ALTER TABLE {table} ADD COLUMN user_labels jsonb NOT NULL DEFAULT '{{}}' "
            "CHECK (jsonb_typeof(user_labels) = 'object')"
        )
        op.execute(
            f"CREATE INDEX {table}_by_label ON {table} USING gin (user_labels) WHERE user_labels "
            f"<> '{{}}'"
        )

    op.execute("CREATE INDEX sessions_of_project ON sessions (project, created_at DESC, id DESC)")
