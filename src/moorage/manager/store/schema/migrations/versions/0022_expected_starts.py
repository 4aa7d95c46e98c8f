"""Expected starts that were told, each with what came of it.

Kept apart from sessions: they measure the scheduler, and outlive the sessions that they are about.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE expected_starts (
    session_id     uuid NOT NULL,
    attempt        int NOT NULL,
    expected_at    timestamptz NOT NULL,
    told_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind           text NOT NULL,
    resource_group text NOT NULL,
    outcome        text NOT NULL DEFAULT '' CHECK (outcome IN ('', 'started', 'not-started')),
    started_at     timestamptz,
    PRIMARY KEY (session_id, attempt, expected_at),
    CONSTRAINT started_at_a_time CHECK ((outcome = 'started') = (started_at IS NOT NULL))
);
CREATE INDEX expected_starts_open ON expected_starts (session_id) WHERE outcome = '';
CREATE INDEX expected_starts_started ON expected_starts (resource_group, kind, told_at)
    WHERE outcome = 'started';
CREATE INDEX expected_starts_age ON expected_starts (told_at);
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
