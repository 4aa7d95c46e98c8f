UPDATE endpoints SET deleted_at = now(), revision = revision + 1, changed_at = now(), replicas = 0
WHERE name = $1 AND deleted_at IS NULL RETURNING id
