-- Those of the endpoints $1 that are not deleted, and deleted ones that still have live replicas.
SELECT e.id, e.name, e.spec, e.replicas, e.changed_at, e.deleted_at, e.owner, e.project, e.isolated FROM endpoints e
WHERE e.id = ANY ($1::uuid[]) AND (e.deleted_at IS NULL OR EXISTS (
    SELECT FROM sessions s WHERE s.endpoint_id = e.id AND s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')))
ORDER BY e.created_at
