-- Record that all replicas of an endpoint ($1) have its target revision ($2) and are ready, as
-- observed by the leader of term $3.
UPDATE endpoint_revisions r SET completed_at = now(), failed_at = NULL, reason = '', detail = ''
FROM endpoints e
WHERE r.endpoint_id = $1::uuid AND r.revision = $2 AND r.completed_at IS NULL
  AND e.id = r.endpoint_id AND e.target_revision = $2
  AND EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $3 AND expires_at > now())
RETURNING r.endpoint_id AS id
