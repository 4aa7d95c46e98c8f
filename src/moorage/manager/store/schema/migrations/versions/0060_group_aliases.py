"""Renaming of resource groups.

A renamed group is a new row, and the row of its old name stays as an alias (``renamed_to``): what
still says the old name keeps its reference, and is resolved where it is written, also by a manager
of the release before. ``rename_group`` moves what is current, in one short transaction;
``settle_aliases`` moves the history, a bounded number of rows per call. An alias has the options of
its group, for statements that join it.
"""

from alembic import op

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE resource_groups
    ADD COLUMN renamed_to text REFERENCES resource_groups (name),
    ADD CONSTRAINT alias_of_another CHECK (renamed_to <> name)
;;
ALTER TABLE agents ADD COLUMN configured_group text
;;
CREATE INDEX resource_groups_aliases ON resource_groups (renamed_to) WHERE renamed_to IS NOT NULL
;;
CREATE INDEX sessions_of_group ON sessions (resource_group)
"""

# An alias never points at an alias, so one step resolves every name.
RESOLVE = """
CREATE FUNCTION current_group(named text) RETURNS text LANGUAGE sql STABLE AS
'SELECT coalesce((SELECT g.renamed_to FROM resource_groups g WHERE g.name = named), named)'
;;
CREATE FUNCTION group_names(named text) RETURNS text[] LANGUAGE sql STABLE AS
'SELECT ARRAY(SELECT current_group(named) UNION
              SELECT g.name FROM resource_groups g WHERE g.renamed_to = current_group(named))'
;;
CREATE FUNCTION sessions_current_group() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE name text := current_group(NEW.resource_group);
BEGIN
    IF name <> NEW.resource_group THEN
        NEW.resource_group := name;
        NEW.spec := jsonb_set(NEW.spec, '{resource_group}', to_jsonb(name));
    END IF;
    RETURN NEW;
END $$
;;
CREATE TRIGGER sessions_current_group BEFORE INSERT ON sessions
    FOR EACH ROW EXECUTE FUNCTION sessions_current_group()
;;
CREATE OR REPLACE FUNCTION agents_make_group() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO resource_groups (name, options) VALUES (NEW.resource_group, '{}'::jsonb)
    ON CONFLICT (name) DO NOTHING;
    NEW.resource_group := current_group(NEW.resource_group);
    RETURN NEW;
END $$
;;
CREATE FUNCTION aliases_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE resource_groups SET options = NEW.options, retired_at = NEW.retired_at WHERE renamed_to = NEW.name;
    RETURN NULL;
END $$
;;
CREATE TRIGGER aliases_follow AFTER UPDATE OF options, retired_at ON resource_groups FOR EACH ROW
    WHEN (NEW.renamed_to IS NULL
          AND (NEW.options, NEW.retired_at) IS DISTINCT FROM (OLD.options, OLD.retired_at))
    EXECUTE FUNCTION aliases_follow()
;;
CREATE OR REPLACE FUNCTION keep_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A rename changes the name of the group, not which group it is.
    IF (NEW.endpoint_id, NEW.revision, NEW.spec - 'resource_group')
            = (OLD.endpoint_id, OLD.revision, OLD.spec - 'resource_group')
       AND NEW.spec ->> 'resource_group' = current_group(OLD.spec ->> 'resource_group') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'revision % of endpoint % never changes', OLD.revision, OLD.endpoint_id
        USING ERRCODE = 'integrity_constraint_violation';
END $$
"""

RENAME = """
CREATE FUNCTION rename_group(from_name text, to_name text, versions bigint[], actor text) RETURNS text
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
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
    ON CONFLICT DO NOTHING;
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

# Live sessions among them were created while the group was being renamed.
SETTLE = """
CREATE FUNCTION settle_aliases(most integer) RETURNS TABLE (moved bigint, live uuid[])
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE moved_now bigint;
BEGIN
    moved := 0;
    IF NOT EXISTS (SELECT FROM resource_groups WHERE renamed_to IS NOT NULL) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    WITH strays AS (
        SELECT s.id, g.renamed_to FROM resource_groups g, LATERAL (
            SELECT * FROM sessions s WHERE s.resource_group = g.name
            LIMIT most FOR NO KEY UPDATE SKIP LOCKED) s
        WHERE g.renamed_to IS NOT NULL
    ), changed AS (
        UPDATE sessions s SET resource_group = o.renamed_to,
            spec = jsonb_set(s.spec, '{resource_group}', to_jsonb(o.renamed_to))
        FROM strays o WHERE s.id = o.id RETURNING s.id, s.status
    )
    SELECT count(*), array_agg(id) FILTER (WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR'))
    INTO moved_now, live FROM changed;
    moved := moved + moved_now;
    UPDATE expected_starts e SET resource_group = o.renamed_to FROM (
        SELECT e.ctid AS place, g.renamed_to FROM resource_groups g, LATERAL (
            SELECT e.ctid FROM expected_starts e
            WHERE e.resource_group = g.name AND e.outcome = 'started' LIMIT most) e
        WHERE g.renamed_to IS NOT NULL) o
    WHERE e.ctid = o.place;
    GET DIAGNOSTICS moved_now = ROW_COUNT;
    moved := moved + moved_now;
    -- Of a span that both names have, the means are weighted.
    WITH gone AS (
        DELETE FROM occupancy_spans o USING (
            SELECT o.ctid AS place, g.renamed_to FROM resource_groups g, LATERAL (
                SELECT o.ctid FROM occupancy_spans o WHERE o.resource_group = g.name LIMIT most) o
            WHERE g.renamed_to IS NOT NULL) s
        WHERE o.ctid = s.place RETURNING s.renamed_to, o.*
    )
    INSERT INTO occupancy_spans AS o (resource_group, seconds, at, samples, slot, capacity, used, used_peak)
    SELECT renamed_to, seconds, at, sum(samples), slot, sum(capacity * samples) / sum(samples),
           sum(used * samples) / sum(samples), max(used_peak) FROM gone GROUP BY renamed_to, seconds, at, slot
    ON CONFLICT (resource_group, seconds, at, slot) DO UPDATE SET samples = o.samples + excluded.samples,
        capacity = o.capacity + (excluded.capacity - o.capacity)
            * excluded.samples / (o.samples + excluded.samples),
        used = o.used + (excluded.used - o.used)
            * excluded.samples / (o.samples + excluded.samples),
        used_peak = greatest(o.used_peak, excluded.used_peak);
    GET DIAGNOSTICS moved_now = ROW_COUNT;
    moved := moved + moved_now;
    WITH gone AS (
        DELETE FROM queue_spans o USING (
            SELECT o.ctid AS place, g.renamed_to FROM resource_groups g, LATERAL (
                SELECT o.ctid FROM queue_spans o WHERE o.resource_group = g.name LIMIT most) o
            WHERE g.renamed_to IS NOT NULL) s
        WHERE o.ctid = s.place RETURNING s.renamed_to, o.*
    )
    INSERT INTO queue_spans AS o (resource_group, seconds, at, samples, pending, pending_peak, running)
    SELECT renamed_to, seconds, at, sum(samples), sum(pending * samples) / sum(samples), max(pending_peak),
           sum(running * samples) / sum(samples) FROM gone GROUP BY renamed_to, seconds, at
    ON CONFLICT (resource_group, seconds, at) DO UPDATE SET samples = o.samples + excluded.samples,
        pending = o.pending + (excluded.pending - o.pending)
            * excluded.samples / (o.samples + excluded.samples),
        running = o.running + (excluded.running - o.running)
            * excluded.samples / (o.samples + excluded.samples),
        pending_peak = greatest(o.pending_peak, excluded.pending_peak);
    GET DIAGNOSTICS moved_now = ROW_COUNT;
    moved := moved + moved_now;
    RETURN NEXT;
END $$
"""


def upgrade() -> None:
    for statements in (COLUMNS, RESOLVE, RENAME, SETTLE):
        for statement in statements.split(";;\n"):
            op.execute(statement)
