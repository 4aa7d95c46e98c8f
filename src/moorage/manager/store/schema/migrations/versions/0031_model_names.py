"""Names of models belong to projects, and names of sessions are unique within their project.

A model is requested by the name of its endpoint, or of its session if that has no endpoint. The
name stays its project's for 30 days after its last use, so that nobody gets another project's
clients. Rows with a name of another project are not inserted, as if the name were in use; so the
manager of the release before refuses them, too. ``used_at`` is when the name was last taken or
freed.
"""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

ENDED = "('TERMINATED', 'CANCELLED', 'ERROR')"

SCHEMA = f"""
CREATE TABLE model_names (
    name     text PRIMARY KEY,
    project  text NOT NULL,
    used_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO model_names (name, project, used_at)
SELECT DISTINCT ON (name) name, project, at FROM (
    SELECT name, project, 0 AS rank, now() AS at FROM endpoints WHERE deleted_at IS NULL
    UNION ALL SELECT name, project, 1, now() FROM sessions
    WHERE type = 'inference' AND endpoint_id IS NULL AND status NOT IN {ENDED}
    UNION ALL SELECT name, project, 2, deleted_at FROM endpoints
    WHERE deleted_at > now() - interval '30 days') used
ORDER BY name, rank, at DESC;
DROP INDEX sessions_live_name;
CREATE UNIQUE INDEX sessions_live_name ON sessions (project, name) WHERE status NOT IN {ENDED};
"""

TAKE = f"""
CREATE FUNCTION take_model_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO model_names AS m (name, project) VALUES (NEW.name, NEW.project)
    ON CONFLICT (name) DO UPDATE SET project = excluded.project, used_at = now()
    WHERE m.project = excluded.project OR (
        m.used_at < now() - interval '30 days'
        AND NOT EXISTS (SELECT FROM endpoints e WHERE e.name = m.name AND e.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM sessions s WHERE s.name = m.name AND s.type = 'inference'
                        AND s.endpoint_id IS NULL AND s.status NOT IN {ENDED}));
    RETURN CASE WHEN FOUND THEN NEW END;
END $$
"""

FREE = """
CREATE FUNCTION free_model_name() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE model_names SET used_at = now() WHERE name = NEW.name AND project = NEW.project;
    RETURN NULL;
END $$
"""

SERVES = "NEW.type = 'inference' AND NEW.endpoint_id IS NULL"
TRIGGERS = f"""
CREATE TRIGGER endpoints_take_name BEFORE INSERT ON endpoints
    FOR EACH ROW EXECUTE FUNCTION take_model_name();
CREATE TRIGGER sessions_take_name BEFORE INSERT ON sessions
    FOR EACH ROW WHEN ({SERVES}) EXECUTE FUNCTION take_model_name();
CREATE TRIGGER endpoints_free_name AFTER UPDATE OF deleted_at ON endpoints
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
    EXECUTE FUNCTION free_model_name();
CREATE TRIGGER sessions_free_name AFTER UPDATE OF status ON sessions
    FOR EACH ROW WHEN ({SERVES} AND OLD.status NOT IN {ENDED} AND NEW.status IN {ENDED})
    EXECUTE FUNCTION free_model_name();
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
    op.execute(TAKE)
    op.execute(FREE)
    for statement in TRIGGERS.split(";\n"):
        if statement.strip():
            op.execute(statement)
