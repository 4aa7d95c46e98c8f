-- The next $3 live sessions, newest first, after the one created at $1 with id $2 (index
-- sessions_live_newest).
SELECT id, created_at FROM sessions
WHERE status NOT IN (:TERMINAL) AND (created_at, id) < ($1::timestamptz, $2::uuid)
ORDER BY created_at DESC, id DESC LIMIT $3
