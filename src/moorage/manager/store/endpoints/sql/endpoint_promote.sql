-- Promote the canary of an endpoint ($1), which is revision $2, to the stable revision.
UPDATE endpoints SET canary_of = NULL, revision = revision + 1, changed_at = now()
WHERE id = $1::uuid AND target_revision = $2 AND canary_of IS NOT NULL AND deleted_at IS NULL
RETURNING id
