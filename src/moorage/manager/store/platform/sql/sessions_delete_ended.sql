-- Delete up to $2 sessions that ended more than $1 seconds ago, with their kernels and history. A
-- session that another one depends on is deleted after that one, and a site job only after the
-- month (UTC), because of its node-hours. Sessions that ended then were created even earlier, so
-- only the oldest sessions are examined (index sessions_newest), no matter how many are kept.
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE created_at < now() - make_interval(secs => $1)
      AND status IN (:TERMINAL) AND status_since < now() - make_interval(secs => $1)
      AND NOT EXISTS (SELECT FROM allocations a JOIN kernels k ON k.id = a.kernel_id
                      WHERE k.session_id = sessions.id AND a.released_at IS NULL)
      AND NOT EXISTS (SELECT FROM kernels k
                      WHERE k.session_id = sessions.id
                        AND k.ends_at > date_trunc('month', now(), 'UTC'))
      AND NOT EXISTS (SELECT FROM session_dependencies d WHERE d.depends_on = sessions.id)
      AND NOT EXISTS (SELECT FROM pipeline_steps p WHERE p.session_id = sessions.id)
    ORDER BY created_at LIMIT $2)
RETURNING id
