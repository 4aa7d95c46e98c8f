-- Delete up to a thousand sessions that ended more than $1 days ago, with their kernels and history. A session that another
-- one depends on is deleted after that one.
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR')
      AND status_since < now() - make_interval(days => $1)
      AND NOT EXISTS (SELECT FROM allocations a JOIN kernels k ON k.id = a.kernel_id
                      WHERE k.session_id = sessions.id AND a.released_at IS NULL)
      AND NOT EXISTS (SELECT FROM session_dependencies d WHERE d.depends_on = sessions.id)
    LIMIT 1000)
RETURNING id
