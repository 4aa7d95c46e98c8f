"""The identity of an agent and its newest stream, so that all managers accept the same reports.

``stream`` is counted by the agent: see ``Report.stream``. 0 and '' stand for agents that report
neither.
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
