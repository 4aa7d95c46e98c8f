"""Queues of sites without a limit: sessions of resource groups of kind hpc are known by their job.

Managers of the release before know them by their limit, and use the index ``sessions_of_site``: it
goes with the release after this one.
"""

from alembic import op

revision = "202611270501"
down_revision = "202611270100"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE INDEX sessions_of_site_jobs ON sessions (resource_group, ready_at DESC) "
        "WHERE spec ? 'job' AND ready_at IS NOT NULL"
    )
