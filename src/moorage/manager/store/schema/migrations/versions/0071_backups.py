"""Backups that were taken of this database and tested, and by how much the clock of each manager is
ahead of Postgres's. For `moorage doctor --cluster`.
"""

from alembic import op

revision = "0071"
down_revision = "0070"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE backups (
    at         timestamptz PRIMARY KEY DEFAULT now(),
    file       text NOT NULL,
    host       text NOT NULL,
    bytes      bigint NOT NULL,
    tested_at  timestamptz
);
ALTER TABLE managers ADD COLUMN clock_ahead_s double precision
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
