-- Content of an event about these endpoints ($1), including deleted ones.
SELECT id, name, project, shared_with, replicas, revision, deleted_at IS NOT NULL AS deleted
FROM endpoints WHERE id = ANY ($1::uuid[])
