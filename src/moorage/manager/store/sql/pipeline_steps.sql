-- The steps of a pipeline ($1), each in its latest run, with their sessions.
SELECT DISTINCT ON (p.position) p.step, p.index, p.run, p.position, s.id, s.name, s.status, s.result, s.reason, s.detail
FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
WHERE p.pipeline_id = $1 ORDER BY p.position, p.run DESC
