-- Live sessions, and agents that were not forgotten, by status and group, for metrics.
SELECT 'session' AS kind, status, resource_group, count(*) AS n FROM sessions
WHERE status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR') GROUP BY 2, 3
UNION ALL
SELECT 'agent', status, resource_group, count(*) FROM agents WHERE incarnation <> '' GROUP BY 2, 3
