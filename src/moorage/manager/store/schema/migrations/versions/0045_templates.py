"""Session templates: versions that never change, of a project or (project '') for all.

``sessions.template``: NAME@VERSION of the template that the session was made from.
"""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE sessions ADD COLUMN template text")
    op.execute(
        "CREATE TABLE templates ("
        "project text NOT NULL, name text NOT NULL, version integer NOT NULL CHECK (version > 0), "
        "body jsonb NOT NULL, bases text[] NOT NULL, created_at timestamptz NOT NULL DEFAULT "
        "now(), "
        "created_by text NOT NULL, deleted_at timestamptz, PRIMARY KEY (project, name, version))"
    )
    op.execute(
        "CREATE FUNCTION templates_keep_versions() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF (new.project, new.name, new.version, new.body, new.bases) IS DISTINCT FROM "
        "(old.project, old.name, old.version, old.body, old.bases) "
        "THEN RAISE 'a version of a template never changes'; END IF; RETURN new; END $$"
    )
    op.execute(
        "CREATE TRIGGER templates_keep_versions BEFORE UPDATE ON templates "
        "FOR EACH ROW EXECUTE FUNCTION templates_keep_versions()"
    )
