-- The database's time, and the pending sessions of a group ($1) whose backoff or begin time has
-- passed since $2 (index sessions_begin).
SELECT now() AS now, ARRAY(
    SELECT s.id FROM sessions s
    WHERE s.status = 'PENDING' AND s.resource_group = $1
      AND (s.not_before IS NOT NULL OR s.starts_at IS NOT NULL)
      AND greatest(s.not_before, s.starts_at) > $2
      AND greatest(s.not_before, s.starts_at) <= now()) AS sessions
