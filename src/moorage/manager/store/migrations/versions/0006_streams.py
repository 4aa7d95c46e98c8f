"""Which agent an id belongs to, and the newest of its streams, so that all managers judge both alike.

``stream`` is the agent's own count: see ``Report.stream``. 0 and '' are of agents that tell neither.
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "ALTER TABLE agents "
        "ADD COLUMN identity text NOT NULL DEFAULT '', "
        "ADD COLUMN stream bigint NOT NULL DEFAULT 0 CHECK (stream >= 0)"
    )
