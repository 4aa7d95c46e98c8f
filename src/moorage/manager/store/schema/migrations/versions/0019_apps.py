"""Service ports of kernels, and permits that open them.

A port of an agent belongs to one kernel at a time. The primary key enforces this, so no route table
can lead to another kernel's program. The row of an ended kernel stays until a live kernel takes the
port over, so kernels without service ports never cost a statement.
"""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE service_ports (
    agent_id   text NOT NULL REFERENCES agents ON DELETE CASCADE,
    port       integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    kernel_id  uuid NOT NULL REFERENCES kernels ON DELETE CASCADE,
    name       text NOT NULL CHECK (name ~ '^[a-z][a-z0-9]*(-[a-z0-9]+)*$' AND length(name) <= 24),
    protocol   text NOT NULL CHECK (protocol IN ('http', 'tcp')),
    base_path  boolean NOT NULL,
    guarded    boolean NOT NULL,
    host       text NOT NULL CHECK (host <> ''),
    PRIMARY KEY (agent_id, port)
);
CREATE INDEX service_ports_by_kernel ON service_ports (kernel_id);

CREATE TABLE permits (
    id          uuid PRIMARY KEY,
    session_id  uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    app         text NOT NULL,
    prefix      text NOT NULL,
    sha256      text NOT NULL UNIQUE CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz,
    revoked_by  text NOT NULL DEFAULT '',
    CONSTRAINT permits_end CHECK (expires_at > created_at)
);
CREATE INDEX permits_by_session ON permits (session_id, app) WHERE revoked_at IS NULL;
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
