-- Writes the first revision of an endpoint. Of the serving options, a revision has only those of
-- the replicas.
CREATE OR REPLACE FUNCTION add_first_revision()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO endpoint_revisions (endpoint_id, revision, spec, created_by)
    VALUES (NEW.id, 1, NEW.spec - 'name' - 'replicas' - 'autoscale' - 'rollout' || (
                SELECT coalesce(jsonb_object_agg(key, value), '{}')
                FROM jsonb_each(as_object(NEW.serving))
                WHERE key IN ('max_lifetime_s', 'adapters')),
            NEW.created_by);
    RETURN NULL;
END
$$;
