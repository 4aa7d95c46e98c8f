-- Sessions that a stop ($1) still has to stop: those that existed when it was requested. For a
-- pipeline, the last steps first, so that the end of a step starts no other; a session that shares
-- the run of another has its status. For a user, sessions that are not replicas, newest first.
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
