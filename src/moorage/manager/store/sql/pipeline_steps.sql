-- The steps of a pipeline ($1), each in its latest run, with their sessions.
SELECT DISTINCT ON (p.position) p.step, p.index, p.run, p.position, s.id, s.name, s.status, s.result, s.reason, s.detail,
    (SELECT to_jsonb(g) - 'kernel_id' FROM kernel_progress g JOIN kernels k ON k.id = g.kernel_id
     WHERE k.session_id = s.id AND k.attempt = s.attempt AND k.cluster_role = 'main') AS progress
FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
WHERE p.pipeline_id = $1 ORDER BY p.position, p.run DESC
