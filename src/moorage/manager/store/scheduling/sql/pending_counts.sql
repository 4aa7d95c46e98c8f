-- Pending sessions by resource group, owner and project.
SELECT resource_group, owner, project, count(*) AS n
FROM sessions
WHERE status = 'PENDING' GROUP BY 1, 2, 3
