"""Lineage of the database: the Postgres cluster that holds it, and the timeline.

A manager that connects to a server with a higher timeline has met a promoted standby, which may
lack the last commits. ``failovers`` counts them, and ``since`` is the time of the last one.
"""

from alembic import op

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE lineage (
    only_row   boolean PRIMARY KEY CHECK (only_row),
    system     text NOT NULL,
    timeline   integer NOT NULL CHECK (timeline > 0),
    since      timestamptz NOT NULL DEFAULT now(),
    failovers  integer NOT NULL DEFAULT 0
)
"""


def upgrade() -> None:
    op.execute(SCHEMA)
