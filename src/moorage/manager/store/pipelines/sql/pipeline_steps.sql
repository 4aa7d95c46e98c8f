-- Steps of a pipeline ($1), each in its latest run, with their sessions; a session that shares
-- another session's run is shown like the other session.
SELECT DISTINCT ON (p.position) p.step, p.index, p.run, p.position, s.id, s.name, s.adopted_from,
    coalesce(o.status, s.status) AS status, coalesce(o.result, s.result) AS result,
    coalesce(o.reason, s.reason) AS reason, coalesce(o.detail, s.detail) AS detail,
    (SELECT to_jsonb(g) - 'kernel_id' FROM kernel_progress g JOIN kernels k ON k.id = g.kernel_id
     WHERE k.session_id = coalesce(o.id, s.id) AND k.attempt = coalesce(o.attempt, s.attempt)
       AND k.cluster_role = 'main') AS progress
FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
LEFT JOIN sessions o ON o.id = s.adopted_from AND s.status = 'PENDING'
WHERE p.pipeline_id = $1 ORDER BY p.position, p.run DESC
