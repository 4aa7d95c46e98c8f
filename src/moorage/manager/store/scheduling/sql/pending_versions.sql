-- The next $4 pending sessions of a group ($1), after the one created at $2 with id $3 (index
-- sessions_pending): whether pending_sessions.sql would return them (`begun`), and the columns that
-- show whether one has changed.
SELECT s.id, s.created_at, s.revision, s.retries, s.bypassed,
       s.held_by IS NULL AND (s.not_before IS NULL OR s.not_before <= now())
         AND (s.starts_at IS NULL OR s.starts_at <= now()) AS begun,
-- include: unmet_dependencies
FROM sessions s
WHERE s.status = 'PENDING' AND s.resource_group = $1
  AND (s.created_at, s.id) > ($2::timestamptz, $3::uuid)
ORDER BY s.created_at, s.id LIMIT $4
