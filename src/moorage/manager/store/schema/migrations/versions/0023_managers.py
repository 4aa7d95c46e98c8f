"""Managers, and the connections of agents to them.

Each manager adds 1 to its ``beat`` every second. Others notice by their own clocks that it stopped,
and remove the row. ``agents.manager`` is the manager that registered the agent's stream;
``detached_stream`` is that stream if it has ended. A manager of the previous release writes
neither: its agents have a newer stream than the one that ended, and so count as connected.
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE managers (
    id          uuid PRIMARY KEY,
    link        text NOT NULL CHECK (link <> ''),
    version     text NOT NULL,
    beat        bigint NOT NULL,
    proxies     text[] NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
ALTER TABLE agents ADD COLUMN manager uuid, ADD COLUMN detached_stream bigint;
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
