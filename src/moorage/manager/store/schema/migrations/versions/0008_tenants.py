"""Owners and projects of sessions, dependencies between sessions, and quotas.

``owner`` and ``project`` come from the API key. The foreign key of a dependency prevents the
deletion of a session that another one still names. ``dependency_state`` alone defines how the end
of a session affects its dependents. In a quota, 0 allows none, and an absent value is no limit.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE api_keys ADD COLUMN owner text,
    ADD COLUMN project text NOT NULL DEFAULT 'default' CHECK (project <> '');
UPDATE api_keys SET owner = name;
ALTER TABLE api_keys ALTER COLUMN owner SET NOT NULL;

ALTER TABLE endpoints ADD COLUMN owner text,
    ADD COLUMN project text NOT NULL DEFAULT 'default' CHECK (project <> '');
UPDATE endpoints SET owner = regexp_replace(created_by, '^key:', '');
ALTER TABLE endpoints ALTER COLUMN owner SET NOT NULL;

ALTER TABLE sessions
    ADD COLUMN owner text,
    ADD COLUMN project text NOT NULL DEFAULT 'default' CHECK (project <> ''),
    ADD COLUMN starts_at timestamptz,
    ADD COLUMN dependencies integer NOT NULL DEFAULT 0 CHECK (dependencies >= 0),
    ADD CONSTRAINT only_batch_starts_later CHECK (starts_at IS NULL OR type = 'batch');
UPDATE sessions SET owner = coalesce((SELECT e.owner FROM endpoints e WHERE e.id = sessions.endpoint_id),
                                     regexp_replace(created_by, '^key:', ''));
ALTER TABLE sessions ALTER COLUMN owner SET NOT NULL;
CREATE INDEX sessions_pending_owner ON sessions (owner) WHERE status = 'PENDING';
CREATE INDEX sessions_pending_project ON sessions (project) WHERE status = 'PENDING';
CREATE INDEX sessions_dependent ON sessions (id) WHERE status = 'PENDING' AND dependencies > 0;

CREATE TABLE session_dependencies (
    session_id  uuid NOT NULL REFERENCES sessions ON DELETE CASCADE,
    depends_on  uuid NOT NULL REFERENCES sessions,
    condition   text NOT NULL CHECK (condition IN ('success', 'any', 'failure')),
    PRIMARY KEY (session_id, depends_on, condition),
    CHECK (session_id <> depends_on)
);
CREATE INDEX session_dependents ON session_dependencies (depends_on);

CREATE TABLE quotas (
    scope       text NOT NULL CHECK (scope IN ('user', 'project', 'group')),
    name        text NOT NULL CHECK (name <> ''),
    slots       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(slots) = 'object'),
    sessions    integer CHECK (sessions >= 0),
    pending     integer CHECK (pending >= 0),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL,
    PRIMARY KEY (scope, name)
);
"""

DEPENDENCY_STATE = """
CREATE FUNCTION dependency_state(condition text, status text, result text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR') THEN 'unmet'
        WHEN condition = 'any' THEN 'met'
        WHEN condition = 'success' AND result = 'SUCCESS' THEN 'met'
        WHEN condition = 'failure' AND (result = 'FAILURE' OR status = 'ERROR') THEN 'met'
        ELSE 'failed' END
$$
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
    op.execute(DEPENDENCY_STATE)
