-- Takes the name of a model. If it belongs to another project, the row is not inserted, as if the
-- name were in use.
CREATE OR REPLACE FUNCTION take_model_name()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO model_names AS m (name, project) VALUES (NEW.name, NEW.project)
    ON CONFLICT (name) DO UPDATE SET project = excluded.project, used_at = now()
    WHERE m.project = excluded.project OR (
        m.used_at < now() - interval '30 days'
        AND NOT EXISTS (SELECT FROM endpoints e WHERE e.name = m.name AND e.deleted_at IS NULL)
        AND NOT EXISTS (SELECT FROM sessions s WHERE s.name = m.name AND s.type = 'inference'
                        AND s.endpoint_id IS NULL AND s.status NOT IN (:TERMINAL)));
    RETURN CASE WHEN FOUND THEN NEW END;
END
$$;
