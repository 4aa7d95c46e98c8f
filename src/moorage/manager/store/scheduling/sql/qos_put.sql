-- Set all options of a QoS. $14: the versions that it may have now (NULL allows any, or none). No
-- row: it has another version.
INSERT INTO qos (name, description, projects, priority, preemptible, price_factor, max_time_s,
                 max_per_session, max_per_user, max_running_per_user, max_total, max_running,
                 changed_by)
SELECT $1, $2, $3::text[], $4::int, $5::boolean, $6::numeric, $7::float8, $8::jsonb, $9::jsonb,
       $10::int, $11::jsonb, $12::int, $13
WHERE $14::bigint[] IS NULL OR EXISTS (SELECT FROM qos WHERE name = $1 FOR UPDATE)
ON CONFLICT (name) DO UPDATE SET
    description = excluded.description, projects = excluded.projects, priority = excluded.priority,
    preemptible = excluded.preemptible, price_factor = excluded.price_factor,
    max_time_s = excluded.max_time_s, max_per_session = excluded.max_per_session,
    max_per_user = excluded.max_per_user, max_running_per_user = excluded.max_running_per_user,
    max_total = excluded.max_total, max_running = excluded.max_running, changed_at = now(),
    changed_by = excluded.changed_by
WHERE $14::bigint[] IS NULL OR qos.version = ANY ($14)
RETURNING name
