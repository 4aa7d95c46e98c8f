-- Takes the names of an endpoint's adapters. If one belongs to another project, the endpoint is
-- neither inserted nor changed, as if the name were in use.
CREATE OR REPLACE FUNCTION take_adapter_names()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    names text[] := CASE WHEN NEW.deleted_at IS NULL
        THEN adapter_names(NEW.name, NEW.serving) ELSE '{}' END;
    taken integer;
BEGIN
    INSERT INTO model_names AS m (name, project, used_at)
    SELECT DISTINCT n, NEW.project, 'infinity'::timestamptz FROM unnest(names) n
    ON CONFLICT (name) DO UPDATE SET project = excluded.project, used_at = excluded.used_at
    WHERE m.project = excluded.project OR (
        m.used_at < now() - interval '30 days'
        AND NOT EXISTS (SELECT FROM endpoints e WHERE e.name = m.name AND e.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM sessions s WHERE s.name = m.name AND s.type = 'inference'
                        AND s.endpoint_id IS NULL AND s.status NOT IN (:TERMINAL)));
    GET DIAGNOSTICS taken = ROW_COUNT;
    IF taken < cardinality(names) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        UPDATE model_names SET used_at = now()
        WHERE project = OLD.project AND name = ANY (adapter_names(OLD.name, OLD.serving))
          AND name <> ALL (names);
    END IF;
    RETURN NEW;
END
$$;
