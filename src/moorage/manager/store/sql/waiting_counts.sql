-- How many sessions of each owner and project wait in each resource group.
SELECT resource_group, owner, project, count(*) AS n FROM sessions WHERE status = 'PENDING' GROUP BY 1, 2, 3
