-- Sessions that refer to it keep it until they end (secrets_delete_unused.sql).
UPDATE secrets SET deleted_at = now() WHERE project = $1 AND name = $2 AND deleted_at IS NULL
RETURNING project, name, version, created_at, created_by, changed_at, changed_by
