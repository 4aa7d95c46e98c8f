-- Delete all versions of a template. Their numbers are not used again.
UPDATE templates SET deleted_at = now()
WHERE project = $1 AND name = $2 AND deleted_at IS NULL RETURNING *
