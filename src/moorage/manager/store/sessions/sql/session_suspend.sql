-- Suspend a running session ($1, of these projects $2) at revision $3, for $4; or resume it ($5).
-- Its time limit does not pass until then: what is left of it is kept. No row: it has changed since
-- it was read. Otherwise one row per live kernel, whose orders change.
WITH changed AS (
    UPDATE sessions s SET revision = s.revision + 1,
        suspended_attempt = CASE WHEN NOT $5::boolean THEN s.attempt END,
        suspended_at = CASE WHEN NOT $5 THEN now() END,
        suspended_by = CASE WHEN NOT $5 THEN $4 END,
        suspended_left_s = CASE WHEN NOT $5 THEN extract(epoch FROM s.deadline_at - now()) END,
        deadline_at = CASE WHEN $5 THEN now() + make_interval(secs => s.suspended_left_s) END
    WHERE s.id = $1::uuid AND s.revision = $3 AND s.status = 'RUNNING'
      AND ($2::text[] IS NULL OR s.project = ANY ($2))
      AND (s.suspended_attempt IS NOT DISTINCT FROM s.attempt) = $5
    RETURNING s.id, s.attempt, s.revision
), logged AS (
    INSERT INTO session_history (session_id, revision, event, from_status, to_status, actor)
    SELECT id, revision, CASE WHEN $5 THEN 'resumed' ELSE 'suspended' END, 'RUNNING', 'RUNNING', $4
    FROM changed
)
SELECT k.agent_id, k.id
FROM changed c JOIN kernels k ON k.session_id = c.id AND k.attempt = c.attempt
WHERE k.status NOT IN (:TERMINAL) AND k.agent_id IS NOT NULL
