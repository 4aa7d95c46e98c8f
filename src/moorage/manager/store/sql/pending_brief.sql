-- Who waits in a group, as pending_rows.sql has them, with all that tells whether one is as it was before (index
-- sessions_pending).
SELECT s.id, s.dependencies > 0 AS dependent, s.revision, s.retries, s.bypassed FROM sessions s
WHERE s.status = 'PENDING' AND s.resource_group = $1 AND (s.not_before IS NULL OR s.not_before <= now())
  AND (s.starts_at IS NULL OR s.starts_at <= now())
