"""Whether sessions of a version of a template run isolated, whoever starts them: somebody who is no
administrator has written it, or what it is based on.

Those of before were an administrator's if they are for all projects, or if the key or the user of
that name is one now: of keys, every one that has had the name. A version that is based on another
one of a project may have that one's command, so it counts as isolated until an administrator sets
it again. So does what a manager of the release before writes.
"""

from alembic import op

revision = "202611271800"
down_revision = "202611271115"
branch_labels = None
depends_on = None

AUTHORS = """
UPDATE templates t SET isolated = NOT (
    project = ''
    OR bases = '{}' AND (
        (SELECT bool_and(coalesce(k.granted_role, k.role) = 'admin' AND k.created_at <= t.created_at)
         FROM api_keys k WHERE t.created_by = 'key:' || k.name)
        IS TRUE
        OR EXISTS (
            SELECT FROM users u WHERE t.created_by = 'user:' || u.name AND u.platform_role = 'admin')))
"""

KEEP = """
CREATE OR REPLACE FUNCTION templates_keep_versions() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
IF (new.project, new.name, new.version, new.body, new.bases, new.isolated) IS DISTINCT FROM
   (old.project, old.name, old.version, old.body, old.bases, old.isolated)
THEN RAISE 'a version of a template never changes'; END IF; RETURN new; END $$
"""


def upgrade() -> None:
    op.execute("ALTER TABLE templates ADD COLUMN isolated boolean NOT NULL DEFAULT true")
    op.execute(AUTHORS)
    op.execute(KEEP)
