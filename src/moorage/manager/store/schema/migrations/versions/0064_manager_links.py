"""Numbers of agents and proxies that are connected to each manager, by its own count.

A manager writes both with each beat, so that nobody has to count the rows of agents every second.
NULL: a manager of the previous release, which does not take part in spreading them.
"""

from alembic import op

revision = "0064"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE managers ADD COLUMN agent_links integer, ADD COLUMN proxy_links integer"
    )
