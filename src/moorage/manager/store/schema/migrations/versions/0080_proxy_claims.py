"""Columns ``manager`` and ``address`` of proxy_reports: who took the last report of this worker,
and where it came from. While that manager is there, no other process reports under the same name.

NULL: its link has ended, or a manager of the release before took the report.
"""

from alembic import op

revision = "0080"
down_revision = "0079"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE proxy_reports ADD COLUMN manager uuid, ADD COLUMN address text")
