-- Store expected starts ($2; kind: $3) that were shown for pending sessions ($1). An estimate
-- within a second of another one for the same attempt counts as the same. At most $4 are stored per
-- attempt.
INSERT INTO expected_starts (session_id, attempt, expected_at, kind, resource_group)
SELECT s.id, s.attempt, i.expected_at, i.kind, s.resource_group
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS i(id, expected_at, kind)
JOIN sessions s USING (id)
WHERE s.status = 'PENDING'
  AND NOT EXISTS (SELECT FROM expected_starts e WHERE e.session_id = s.id AND e.attempt = s.attempt
                  AND e.expected_at > i.expected_at - interval '1 second'
                  AND e.expected_at < i.expected_at + interval '1 second')
  AND (SELECT count(*) FROM expected_starts e WHERE e.session_id = s.id AND e.attempt = s.attempt)
      < $4
ON CONFLICT DO NOTHING
