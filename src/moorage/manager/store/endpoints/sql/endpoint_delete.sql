UPDATE endpoints SET deleted_at = now(), revision = revision + 1, changed_at = now(), replicas = 0
WHERE name = $1 AND deleted_at IS NULL
  AND ($2::text[] IS NULL OR project = ANY ($2)) AND ($3::text IS NULL OR owner = $3)
 RETURNING id
