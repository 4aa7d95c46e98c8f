SELECT key_id, sealed FROM secrets WHERE project = $1 AND name = $2 AND deleted_at IS NULL
