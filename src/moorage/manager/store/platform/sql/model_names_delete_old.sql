-- Delete at most $1 names that nobody has used for 30 days, so that anyone may take them (trigger
-- take_model_name).
DELETE FROM model_names WHERE name IN (
    SELECT m.name FROM model_names m WHERE m.used_at < now() - interval '30 days'
      AND NOT EXISTS (SELECT FROM endpoints e WHERE e.name = m.name AND e.deleted_at IS NULL)
      AND NOT EXISTS (SELECT FROM sessions s
                      WHERE s.name = m.name AND s.type = 'inference' AND s.endpoint_id IS NULL
                      AND s.status NOT IN (:TERMINAL))
    LIMIT $1)
RETURNING name
