-- How many steps of these pipelines ($1) have a session in each status, in their latest run.
SELECT pipeline_id, status, result, reason, count(*) AS n FROM (
    SELECT DISTINCT ON (p.pipeline_id, p.position) p.pipeline_id, s.status, s.result, s.reason
    FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
    WHERE p.pipeline_id = ANY ($1::uuid[]) ORDER BY p.pipeline_id, p.position, p.run DESC) latest
GROUP BY 1, 2, 3, 4
