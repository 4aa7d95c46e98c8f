"""Audit log: every administrative write, with its actor, and the resource before and after it.

An entry is written before the write and completed after it, so a write without an entry cannot be;
one whose status is missing may have happened or not. Entries are never changed once they are
complete.
"""

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE audit_log (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at            timestamptz NOT NULL DEFAULT now(),
    actor         text NOT NULL,
    user_name     text NOT NULL,
    project       text NOT NULL,
    from_address  text NOT NULL,
    request_id    text NOT NULL,
    action        text NOT NULL,
    resource      text NOT NULL,
    name          text NOT NULL,
    status        integer,
    code          text NOT NULL DEFAULT '',
    before        jsonb,
    after         jsonb
);
CREATE INDEX audit_log_by_time ON audit_log (at);
CREATE INDEX audit_log_by_actor ON audit_log (actor, id);
CREATE INDEX audit_log_by_resource ON audit_log (resource, name, id)
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        op.execute(statement)
