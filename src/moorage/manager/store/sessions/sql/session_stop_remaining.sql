-- Sessions that a stop ($1) still has to stop: those that existed when it was requested. For a
-- pipeline, the last steps come first, so that no step starts because another has ended; a session
-- that shares another session's run has the status of the other one. For a user, sessions that are
-- not replicas, newest first.
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
