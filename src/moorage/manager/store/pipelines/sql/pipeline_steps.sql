-- Steps of a pipeline ($1), each in its latest run, with their sessions; a session that shares
-- another session's run is shown like the other session. A program that ended before its agent
-- reported it as running started at its end, as far as is known.
SELECT DISTINCT ON (p.position) p.step, p.index, p.run, p.position, s.id, s.name, s.adopted_from,
    coalesce(o.status, s.status) AS status, coalesce(o.result, s.result) AS result,
    coalesce(o.reason, s.reason) AS reason, coalesce(o.detail, s.detail) AS detail,
    coalesce(o.attempt, s.attempt) AS attempt,
    CASE WHEN coalesce(o.status, s.status) IN (:TERMINAL)
         THEN coalesce(o.status_since, s.status_since) END AS ended_at,
    coalesce(k.started_at, k.running_at,
             CASE WHEN k.exit_code IS NOT NULL THEN k.status_since END) AS started_at, k.exit_code,
    (SELECT to_jsonb(g) - 'kernel_id' FROM kernel_progress g WHERE g.kernel_id = k.id) AS progress
FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
LEFT JOIN sessions o ON o.id = s.adopted_from AND s.status = 'PENDING'
LEFT JOIN kernels k ON k.session_id = coalesce(o.id, s.id)
    AND k.attempt = coalesce(o.attempt, s.attempt) AND k.cluster_role = 'main'
WHERE p.pipeline_id = $1 ORDER BY p.position, p.run DESC
