-- Drain running replicas ($1) for reasons ($2): they get no new requests from now on. With a NULL
-- reason, they serve again. $3: the term of the leader.
WITH lease AS (
    SELECT term FROM leases WHERE name = 'leader' AND term = $3 AND expires_at > now() FOR SHARE
)
UPDATE sessions s
SET draining_since = CASE WHEN i.reason IS NULL THEN NULL ELSE now() END,
    drain_reason = coalesce(i.reason, ''), drain_generation = NULL
FROM unnest($1::uuid[], $2::text[]) AS i(id, reason)
WHERE s.id = i.id AND s.status = 'RUNNING' AND (s.draining_since IS NULL) = (i.reason IS NOT NULL)
  AND EXISTS (SELECT FROM lease)
RETURNING s.id, s.endpoint_id
