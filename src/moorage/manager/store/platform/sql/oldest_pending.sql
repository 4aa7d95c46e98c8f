-- How long the longest-waiting session has been pending, in seconds, by group (index
-- sessions_pending).
SELECT resource_group, extract(epoch FROM now() - min(status_since))::float8 AS seconds
FROM sessions WHERE status = 'PENDING' GROUP BY 1
