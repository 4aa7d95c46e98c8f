-- The next $2 endpoints, and running inference sessions without one, after the id $1 (indexes
-- endpoints_live, sessions_serving).
SELECT id FROM (
    (SELECT id FROM endpoints WHERE deleted_at IS NULL AND id > $1::uuid ORDER BY id LIMIT $2)
    UNION ALL
    (SELECT id FROM sessions
     WHERE status = 'RUNNING' AND type = 'inference' AND endpoint_id IS NULL AND id > $1::uuid
     ORDER BY id LIMIT $2)) n
ORDER BY id LIMIT $2
