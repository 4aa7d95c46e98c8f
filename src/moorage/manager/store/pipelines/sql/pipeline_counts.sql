-- How many steps of these pipelines ($1) have a session in each status, in their latest run.
-- `step`: NULL for steps that are not arrays.
SELECT pipeline_id, step, status, result, reason, count(*) AS n FROM (
    SELECT DISTINCT ON (p.pipeline_id, p.position) p.pipeline_id,
           CASE WHEN p.index >= 0 THEN p.step END AS step,
           coalesce(o.status, s.status) AS status, coalesce(o.result, s.result) AS result,
           coalesce(o.reason, s.reason) AS reason
    FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
    LEFT JOIN sessions o ON o.id = s.adopted_from AND s.status = 'PENDING'
    WHERE p.pipeline_id = ANY ($1::uuid[]) ORDER BY p.pipeline_id, p.position, p.run DESC) latest
GROUP BY 1, 2, 3, 4, 5
