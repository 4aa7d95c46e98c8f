"""Users, projects and memberships; roles, restrictions and rotation of keys.

``sessions.owner`` and ``project`` keep naming users and projects, which are never deleted or
renamed. A key that a manager of the release before makes brings along its user, project and
membership, as one does that an administrator makes for somebody new. ``role`` remains what that
release reads: it knows members and administrators. ``granted_role`` is what the key was made with.
"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

SCHEMA = """
CREATE TABLE users (
    id             uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    name           text PRIMARY KEY CHECK (name <> ''),
    email          text NOT NULL DEFAULT '',
    status         text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled')),
    platform_role  text CHECK (platform_role IN ('auditor', 'admin')),
    created_at     timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL DEFAULT ''
);
CREATE TABLE projects (
    id               uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    name             text PRIMARY KEY CHECK (name <> ''),
    status           text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled')),
    max_priority     integer CHECK (max_priority BETWEEN 0 AND 100),
    resource_groups  text[],
    created_at       timestamptz NOT NULL DEFAULT now(),
    created_by       text NOT NULL DEFAULT ''
);
CREATE TABLE memberships (
    project     text NOT NULL REFERENCES projects,
    user_name   text NOT NULL REFERENCES users,
    role        text NOT NULL CHECK (role IN ('viewer', 'member', 'admin')),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL DEFAULT '',
    PRIMARY KEY (project, user_name)
);
CREATE INDEX memberships_by_user ON memberships (user_name);

ALTER TABLE api_keys
    ADD COLUMN granted_role text
        CHECK (granted_role IN ('viewer', 'member', 'project-admin', 'auditor', 'admin')),
    ADD COLUMN scopes text[],
    ADD COLUMN models text[],
    ADD COLUMN resource_groups text[],
    ADD COLUMN max_priority integer CHECK (max_priority BETWEEN 0 AND 100),
    ADD COLUMN requests_per_minute integer CHECK (requests_per_minute >= 0),
    ADD COLUMN tokens_per_minute integer CHECK (tokens_per_minute >= 0),
    ADD COLUMN concurrent_requests integer CHECK (concurrent_requests >= 0),
    ADD COLUMN previous_sha256 text UNIQUE CHECK (previous_sha256 ~ '^[0-9a-f]{64}$'),
    ADD COLUMN previous_until timestamptz,
    ADD CONSTRAINT only_admins_are_admins CHECK ((role = 'admin') = (coalesce(granted_role, role) = 'admin'));

-- What the release before creates is for everyone, as it always was there.
ALTER TABLE endpoints ADD COLUMN shared_with text[] NOT NULL DEFAULT '{*}';

INSERT INTO projects (name)
SELECT 'default' UNION SELECT project FROM api_keys UNION SELECT project FROM sessions
UNION SELECT project FROM endpoints UNION SELECT name FROM quotas WHERE scope = 'project';
INSERT INTO users (name, platform_role)
SELECT name, CASE WHEN bool_or(is_admin) THEN 'admin' END FROM (
    SELECT owner, role = 'admin' AND revoked_at IS NULL FROM api_keys
    UNION SELECT owner, false FROM sessions UNION SELECT owner, false FROM endpoints
    UNION SELECT name, false FROM quotas WHERE scope = 'user') AS known (name, is_admin)
WHERE name <> '' GROUP BY name;
INSERT INTO memberships (project, user_name, role)
SELECT DISTINCT project, owner, 'member' FROM api_keys
WHERE revoked_at IS NULL AND owner <> '' AND role <> 'admin';
"""

KEY_OWNER = """
CREATE FUNCTION make_key_owner() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE granted text := coalesce(NEW.granted_role, NEW.role);
BEGIN
    INSERT INTO users (name, platform_role, created_by)
    VALUES (NEW.owner, CASE WHEN granted IN ('auditor', 'admin') THEN granted END, NEW.created_by)
    ON CONFLICT (name) DO NOTHING;
    INSERT INTO projects (name, created_by) VALUES (NEW.project, NEW.created_by)
    ON CONFLICT (name) DO NOTHING;
    IF granted NOT IN ('auditor', 'admin') THEN
        INSERT INTO memberships (project, user_name, role, changed_by)
        VALUES (NEW.project, NEW.owner, CASE granted WHEN 'project-admin' THEN 'admin' ELSE granted END,
                NEW.created_by)
        ON CONFLICT (project, user_name) DO NOTHING;
    END IF;
    RETURN NULL;
END $$
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
    op.execute(KEY_OWNER)
    op.execute(
        "CREATE TRIGGER api_keys_owner AFTER INSERT ON api_keys "
        "FOR EACH ROW EXECUTE FUNCTION make_key_owner()"
    )
