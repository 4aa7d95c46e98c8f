-- Moves current rows from one name of a group to another, in one short transaction; settle_aliases
-- moves the history. Returns renamed, changed (the group has another version) or taken.
CREATE OR REPLACE FUNCTION rename_group(from_name text, to_name text, versions bigint[], actor text)
RETURNS text LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE before resource_groups%ROWTYPE;
BEGIN
    -- Not FOR UPDATE, for which sessions that are being created in the group would wait.
    SELECT * INTO before FROM resource_groups g WHERE g.name = from_name FOR NO KEY UPDATE;
    IF NOT FOUND OR before.renamed_to IS NOT NULL
        OR NOT coalesce(before.version = ANY (versions), true) THEN
        RETURN 'changed';
    END IF;
    INSERT INTO resource_groups AS g (name, options, created_at, cursors, losses_held_since,
                                      version, retired_at, changed_at, changed_by)
    VALUES (to_name, before.options, before.created_at, before.cursors, before.losses_held_since,
            before.version + 1, before.retired_at, now(), actor)
    ON CONFLICT (name) DO UPDATE SET renamed_to = NULL, created_at = excluded.created_at,
        cursors = excluded.cursors, losses_held_since = excluded.losses_held_since,
        version = excluded.version, changed_at = excluded.changed_at,
        changed_by = excluded.changed_by
    WHERE g.renamed_to = from_name;  -- the group gets a former name back
    IF NOT FOUND THEN
        RETURN 'taken';
    END IF;
    UPDATE resource_groups SET renamed_to = to_name, version = version + 1
    WHERE (name = from_name OR renamed_to = from_name) AND name <> to_name;

    DELETE FROM group_limits WHERE resource_group = to_name;
    UPDATE group_limits SET resource_group = to_name WHERE resource_group = from_name;
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
    -- The group has a former name again, under which there are older prices: of these, what is
    -- past stays.
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
        FROM jsonb_array_elements(as_array(serving -> 'resource_groups')) one))
    WHERE as_array(serving -> 'resource_groups') ? from_name AND deleted_at IS NULL;

    PERFORM FROM agents a WHERE a.resource_group = from_name OR a.assigned_group = from_name
    ORDER BY a.id FOR NO KEY UPDATE;
    UPDATE agents SET resource_group = to_name WHERE resource_group = from_name;
    UPDATE agents SET assigned_group = to_name WHERE assigned_group = from_name;
    PERFORM FROM sessions s
    WHERE s.resource_group = from_name AND s.status NOT IN (:TERMINAL)
    ORDER BY s.id FOR NO KEY UPDATE;
    UPDATE sessions s SET resource_group = to_name,
        spec = jsonb_set(s.spec, '{resource_group}', to_jsonb(to_name))
    WHERE s.resource_group = from_name AND s.status NOT IN (:TERMINAL);
    RETURN 'renamed';
END
$$;
