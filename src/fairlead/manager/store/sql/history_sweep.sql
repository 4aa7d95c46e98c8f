-- Forget sessions that ended long ago ($1 days), with their kernels and history, a thousand at a time.
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE status IN ('TERMINATED', 'CANCELLED', 'ERROR')
      AND status_since < now() - make_interval(days => $1)
      AND NOT EXISTS (SELECT FROM allocations a JOIN kernels k ON k.id = a.kernel_id
                      WHERE k.session_id = sessions.id AND a.released_at IS NULL)
    LIMIT 1000)
RETURNING id
