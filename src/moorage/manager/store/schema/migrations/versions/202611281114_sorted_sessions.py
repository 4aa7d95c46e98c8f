"""Indexes for lists of sessions by their owner, project, group, priority and status.

Each ends with the id, which breaks ties between pages.
"""

from alembic import op

revision = "202611281114"
down_revision = "202611281016"
branch_labels = None
depends_on = None

_COLUMNS = ("owner", "project", "resource_group", "priority", "status")


def upgrade() -> None:
    for column in _COLUMNS:
        op.execute(
            f"CREATE INDEX sessions_sorted_by_{column} ON sessions ({column}, id) "
            "WHERE removed_at IS NULL"
        )
