"""Cordoned and drained agents, and the history of administrative changes of agents.

``draining`` stays the column that planning reads: no new kernels there, because the agent reported
it (``leaving``) or an administrator cordoned it.
"""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE agents RENAME COLUMN draining TO leaving;
ALTER TABLE agents
    ADD COLUMN cordon text NOT NULL DEFAULT '' CHECK (cordon IN ('', 'cordon', 'drain')),
    ADD COLUMN cordoned_by text NOT NULL DEFAULT '',
    ADD COLUMN cordoned_at timestamptz,
    ADD COLUMN stop_at timestamptz,
    ADD CONSTRAINT only_a_drain_stops CHECK (stop_at IS NULL OR cordon = 'drain');
ALTER TABLE agents ADD COLUMN draining boolean NOT NULL GENERATED ALWAYS AS (leaving OR cordon <> '') STORED;
CREATE TABLE agent_history (
    agent_id text NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    event    text NOT NULL,
    actor    text NOT NULL,
    detail   text NOT NULL DEFAULT '',
    PRIMARY KEY (agent_id, at)
);
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
