SELECT project, name, version, created_at, created_by, changed_at, changed_by FROM secrets
WHERE project = $1 AND deleted_at IS NULL
