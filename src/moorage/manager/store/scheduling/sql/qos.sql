-- name: qos_list
-- Every QoS, or one ($1), that one of the projects $2 may use (NULL: all projects).
SELECT name, description, projects, priority, preemptible, price_factor::float8 AS price_factor,
       max_time_s, max_per_session, max_per_user, max_running_per_user, max_total, max_running,
       version, changed_at, changed_by
FROM qos
WHERE ($1::text IS NULL OR name = $1)
  AND ($2::text[] IS NULL OR projects IS NULL OR projects && $2)

-- name: qos_delete
-- $2: the versions that it may have (NULL: any).
DELETE FROM qos WHERE name = $1 AND ($2::bigint[] IS NULL OR version = ANY ($2)) RETURNING name

-- name: qos_limits
-- Limits on the placed sessions of each QoS that has any.
SELECT name, max_per_user, max_running_per_user, max_total, max_running
FROM qos
WHERE max_per_user <> '{}' OR max_running_per_user IS NOT NULL OR max_total <> '{}'
   OR max_running IS NOT NULL
