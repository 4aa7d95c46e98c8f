"""Former names of resource groups in what is written after the rename.

A manager of the release before, and one that has not heard of the rename, write what a request
says. Sessions and agents were resolved by triggers; definitions are now, too: an endpoint under an
alias started no replica once the alias was freed, and a restriction or a quota under one had no
effect.

``settle_agents``: an agent that was registering while its group was being renamed.
``rename_group``: a group that gets a former name back keeps its prices of today.
"""

from alembic import op

revision = "0062"
down_revision = "0061"
branch_labels = None
depends_on = None

DEFINITIONS = """
CREATE FUNCTION current_groups(named text[]) RETURNS text[] LANGUAGE sql STABLE AS
'SELECT CASE WHEN named IS NOT NULL
        THEN ARRAY(SELECT current_group(n.name) FROM unnest(named) WITH ORDINALITY n(name, i)
                   GROUP BY 1 ORDER BY min(n.i)) END'
;;
CREATE FUNCTION with_current_group(spec jsonb) RETURNS jsonb LANGUAGE sql STABLE AS
'SELECT CASE WHEN spec ? ''resource_group''
        THEN jsonb_set(spec, ''{resource_group}'', to_jsonb(current_group(spec ->> ''resource_group'')))
        ELSE spec END'
;;
CREATE FUNCTION spec_current_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.spec := with_current_group(NEW.spec);
    RETURN NEW;
END $$
;;
CREATE FUNCTION endpoints_current_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.spec := with_current_group(NEW.spec);
    IF jsonb_typeof(NEW.serving -> 'resource_groups') = 'array' THEN
        NEW.serving := jsonb_set(NEW.serving, '{resource_groups}', to_jsonb(current_groups(
            ARRAY(SELECT jsonb_array_elements_text(NEW.serving -> 'resource_groups')))));
    END IF;
    RETURN NEW;
END $$
;;
CREATE FUNCTION allowed_current_groups() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.resource_groups := current_groups(NEW.resource_groups);
    RETURN NEW;
END $$
;;
CREATE FUNCTION quotas_current_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.name := current_group(NEW.name);
    RETURN NEW;
END $$
;;
CREATE TRIGGER endpoints_current_group BEFORE INSERT OR UPDATE OF spec, serving ON endpoints
    FOR EACH ROW EXECUTE FUNCTION endpoints_current_group()
;;
CREATE TRIGGER endpoint_revisions_current_group BEFORE INSERT ON endpoint_revisions
    FOR EACH ROW EXECUTE FUNCTION spec_current_group()
;;
CREATE TRIGGER projects_current_groups BEFORE INSERT OR UPDATE OF resource_groups ON projects
    FOR EACH ROW WHEN (NEW.resource_groups IS NOT NULL) EXECUTE FUNCTION allowed_current_groups()
;;
CREATE TRIGGER api_keys_current_groups BEFORE INSERT OR UPDATE OF resource_groups ON api_keys
    FOR EACH ROW WHEN (NEW.resource_groups IS NOT NULL) EXECUTE FUNCTION allowed_current_groups()
;;
CREATE TRIGGER quotas_current_group BEFORE INSERT ON quotas
    FOR EACH ROW WHEN (NEW.scope = 'group') EXECUTE FUNCTION quotas_current_group()
"""

AGENTS = """
CREATE INDEX agents_of_group ON agents (resource_group)
;;
CREATE FUNCTION settle_agents() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE moved text[];
BEGIN
    IF NOT EXISTS (SELECT FROM resource_groups WHERE renamed_to IS NOT NULL) THEN
        RETURN '{}';
    END IF;
    WITH strays AS (
        SELECT a.id, g.renamed_to FROM resource_groups g, LATERAL (
            SELECT a.id FROM agents a WHERE a.resource_group = g.name OFFSET 0) a
        WHERE g.renamed_to IS NOT NULL
    ), changed AS (
        UPDATE agents a SET resource_group = s.renamed_to FROM strays s WHERE a.id = s.id RETURNING a.id
    )
    SELECT coalesce(array_agg(id), '{}') INTO moved FROM changed;
    RETURN moved;
END $$
"""

RENAME = """
CREATE OR REPLACE FUNCTION rename_group(from_name text, to_name text, versions bigint[], actor text)
RETURNS text LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE before resource_groups%ROWTYPE;
BEGIN
    -- Not FOR UPDATE, for which sessions that are being created in the group would wait.
    SELECT * INTO before FROM resource_groups g WHERE g.name = from_name FOR NO KEY UPDATE;
    IF NOT FOUND OR before.renamed_to IS NOT NULL OR NOT coalesce(before.version = ANY (versions), true) THEN
        RETURN 'changed';
    END IF;
    INSERT INTO resource_groups AS g (name, options, created_at, cursors, losses_held_since, version,
                                      retired_at, changed_at, changed_by)
    VALUES (to_name, before.options, before.created_at, before.cursors, before.losses_held_since,
            before.version + 1, before.retired_at, now(), actor)
    ON CONFLICT (name) DO UPDATE SET renamed_to = NULL, created_at = excluded.created_at,
        cursors = excluded.cursors, losses_held_since = excluded.losses_held_since,
        version = excluded.version, changed_at = excluded.changed_at, changed_by = excluded.changed_by
    WHERE g.renamed_to = from_name;  -- the group gets a former name back
    IF NOT FOUND THEN
        RETURN 'taken';
    END IF;
    UPDATE resource_groups SET renamed_to = to_name, version = version + 1
    WHERE (name = from_name OR renamed_to = from_name) AND name <> to_name;

    DELETE FROM quotas WHERE scope = 'group' AND name = to_name;
    UPDATE quotas SET name = to_name WHERE scope = 'group' AND name = from_name;
    UPDATE projects SET resource_groups = array_replace(resource_groups, from_name, to_name)
    WHERE from_name = ANY (resource_groups);
    UPDATE api_keys SET resource_groups = array_replace(resource_groups, from_name, to_name)
    WHERE from_name = ANY (resource_groups);
    -- What was used under the former name keeps its prices.
    INSERT INTO prices (unit, device, resource_group, since, price, changed_at, changed_by)
    SELECT unit, device, to_name, since, price, changed_at, changed_by FROM prices
    WHERE resource_group = from_name
    -- The group has a former name again, under which there are older prices: of these, what is past stays.
    ON CONFLICT (unit, device, resource_group, since) DO UPDATE SET price = excluded.price,
        changed_at = excluded.changed_at, changed_by = excluded.changed_by
    WHERE excluded.since >= date_trunc('hour', now(), 'UTC');
    UPDATE join_tokens SET resource_group = to_name WHERE resource_group = from_name;
    UPDATE link_peers SET resource_group = to_name WHERE resource_group = from_name;
    UPDATE endpoint_revisions SET spec = jsonb_set(spec, '{resource_group}', to_jsonb(to_name))
    WHERE spec ->> 'resource_group' = from_name;
    UPDATE endpoints SET spec = jsonb_set(spec, '{resource_group}', to_jsonb(to_name))
    WHERE spec ->> 'resource_group' = from_name AND deleted_at IS NULL;
    UPDATE endpoints SET serving = jsonb_set(serving, '{resource_groups}', (
        SELECT jsonb_agg(CASE one WHEN to_jsonb(from_name) THEN to_jsonb(to_name) ELSE one END)
        FROM jsonb_array_elements(serving -> 'resource_groups') one))
    WHERE serving -> 'resource_groups' ? from_name AND deleted_at IS NULL;

    PERFORM FROM agents a WHERE a.resource_group = from_name OR a.assigned_group = from_name
    ORDER BY a.id FOR NO KEY UPDATE;
    UPDATE agents SET resource_group = to_name WHERE resource_group = from_name;
    UPDATE agents SET assigned_group = to_name WHERE assigned_group = from_name;
    PERFORM FROM sessions s
    WHERE s.resource_group = from_name AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
    ORDER BY s.id FOR NO KEY UPDATE;
    UPDATE sessions s SET resource_group = to_name,
        spec = jsonb_set(s.spec, '{resource_group}', to_jsonb(to_name))
    WHERE s.resource_group = from_name AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR');
    RETURN 'renamed';
END $$
"""


def upgrade() -> None:
    for statement in (*DEFINITIONS.split(";;\n"), *AGENTS.split(";;\n"), RENAME):
        op.execute(statement)
