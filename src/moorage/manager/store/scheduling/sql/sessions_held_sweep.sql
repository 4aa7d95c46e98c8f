-- The next $3 live sessions, newest first, after the one created at $1 with id $2 (index
-- sessions_live_newest), and the slots that they hold, as in quota_usage.sql. `slots` is NULL if
-- they hold nothing.
SELECT s.created_at, s.id, s.resource_group, s.owner, s.project,
       CASE WHEN s.status <> 'PENDING' THEN s.slots::text END AS slots, s.type = 'system' AS system,
       q.qos
FROM sessions s LEFT JOIN session_qos q ON q.session_id = s.id
WHERE s.status NOT IN (:TERMINAL) AND (s.created_at, s.id) < ($1::timestamptz, $2::uuid)
ORDER BY s.created_at DESC, s.id DESC LIMIT $3
