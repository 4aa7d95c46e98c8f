UPDATE join_tokens SET removed_at = now(), removed_by = $2
WHERE id = $1 AND removed_at IS NULL
RETURNING id, kind, resource_group, uses, used, expires_at, created_at, created_by
