-- If the endpoint had been given up, a change revives it: replicas that failed before are no longer
-- counted (they are older than changed_at). An autoscaled endpoint stays within its limits.
UPDATE endpoints SET replicas = $2, spec = jsonb_set(spec, '{replicas}', to_jsonb($2::int)),
    revision = revision + 1, changed_at = now()
WHERE name = $1 AND deleted_at IS NULL
  AND ($3::text[] IS NULL OR project = ANY ($3)) AND ($4::text IS NULL OR owner = $4)
  AND $2 BETWEEN coalesce(as_integer(serving -> 'autoscale' -> 'min'), 0) AND coalesce(
      as_integer(serving -> 'autoscale' -> 'max'), $2)
 RETURNING id
