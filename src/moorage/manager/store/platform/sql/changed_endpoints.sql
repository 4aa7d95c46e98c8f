-- What an event says about these endpoints ($1), also those that were deleted.
SELECT id, name, project, shared_with, replicas, revision, deleted_at IS NOT NULL AS deleted
FROM endpoints WHERE id = ANY ($1::uuid[])
