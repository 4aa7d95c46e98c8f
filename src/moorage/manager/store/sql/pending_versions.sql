-- The sessions of a group ($1) that pending_sessions.sql would return, with the columns that show whether one has changed
-- (index sessions_pending).
SELECT s.id, s.dependencies > 0 AS dependent, s.revision, s.retries, s.bypassed FROM sessions s
WHERE s.status = 'PENDING' AND s.resource_group = $1 AND (s.not_before IS NULL OR s.not_before <= now())
  AND (s.starts_at IS NULL OR s.starts_at <= now())
