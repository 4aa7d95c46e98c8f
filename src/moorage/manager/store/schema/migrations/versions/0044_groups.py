"""Versions and retirement of resource groups, and agents that an administrator has put into a
group.

An agent stands in a group that exists: a trigger makes the group that an agent names, also for a
manager of the release before, and the reference holds from then on. What an administrator says
about an agent's group (``assigned_group``) wins over what its configuration says.
"""

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

SCHEMA = """
ALTER TABLE resource_groups
    ADD COLUMN version bigint NOT NULL DEFAULT 1,
    ADD COLUMN retired_at timestamptz,
    ADD COLUMN changed_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN changed_by text NOT NULL DEFAULT ''
;;
INSERT INTO resource_groups (name, options) SELECT DISTINCT resource_group, '{}'::jsonb FROM agents
ON CONFLICT (name) DO NOTHING
;;
CREATE FUNCTION agents_make_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO resource_groups (name, options) VALUES (NEW.resource_group, '{}'::jsonb)
    ON CONFLICT (name) DO NOTHING;
    RETURN NEW;
END $$
;;
CREATE TRIGGER agents_make_group BEFORE INSERT ON agents FOR EACH ROW EXECUTE FUNCTION agents_make_group()
;;
CREATE TRIGGER agents_change_group BEFORE UPDATE OF resource_group ON agents FOR EACH ROW
    WHEN (NEW.resource_group IS DISTINCT FROM OLD.resource_group) EXECUTE FUNCTION agents_make_group()
;;
ALTER TABLE agents
    ADD COLUMN assigned_group text REFERENCES resource_groups (name),
    ADD CONSTRAINT agents_group_exists FOREIGN KEY (resource_group) REFERENCES resource_groups (name)
"""


def upgrade() -> None:
    for statement in SCHEMA.split(";;\n"):
        op.execute(statement)
