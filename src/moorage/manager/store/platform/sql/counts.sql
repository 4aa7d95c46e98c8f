-- Live sessions, agents that were not forgotten, and their doubtful jobs, by status and group, for
-- metrics (indexes sessions_pending, sessions_moving, sessions_running).
SELECT 'session' AS kind, 'PENDING' AS status, resource_group, count(*) AS n FROM sessions
WHERE status = 'PENDING' GROUP BY resource_group
UNION ALL
SELECT 'session', 'RUNNING', resource_group, count(*)
FROM sessions
WHERE status = 'RUNNING' GROUP BY resource_group
UNION ALL
SELECT 'session', status, resource_group, count(*) FROM sessions
WHERE status IN (:AWAITING_AGENT) GROUP BY 2, 3
UNION ALL
SELECT 'agent', status, resource_group, count(*) FROM agents WHERE incarnation <> '' GROUP BY 2, 3
UNION ALL
SELECT 'doubtful-job', '', resource_group, sum(jsonb_array_length(as_array(doubtful_jobs)))::bigint
FROM agents
WHERE doubtful_jobs <> '[]' GROUP BY 3
