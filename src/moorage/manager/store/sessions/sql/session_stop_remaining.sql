-- What a stop ($1) has still to stop: sessions that existed when it was asked for. Of a pipeline,
-- the last steps first, so that the end of one starts none; one that shares the run of another has
-- its status. Of a user, those that are no replicas, the newest first.
SELECT id FROM (
SELECT s.id, p.position AS place, s.created_at
FROM session_stops t JOIN pipeline_steps p ON p.pipeline_id = t.pipeline_id
JOIN sessions s ON s.id = p.session_id
LEFT JOIN sessions o ON o.id = s.adopted_from AND s.status = 'PENDING'
WHERE t.id = $1 AND s.created_at <= t.asked_at
  AND s.status NOT IN ('TERMINATING', :TERMINAL)
  AND coalesce(o.status, '') NOT IN (:TERMINAL)
UNION ALL
SELECT s.id, 0, s.created_at FROM session_stops t JOIN sessions s ON s.owner = t.owner
WHERE t.id = $1 AND s.created_at <= t.asked_at AND s.endpoint_id IS NULL
  AND (t.projects IS NULL OR s.project = ANY (t.projects))
  AND s.status NOT IN ('TERMINATING', :TERMINAL)
) found ORDER BY place DESC, created_at DESC, id
