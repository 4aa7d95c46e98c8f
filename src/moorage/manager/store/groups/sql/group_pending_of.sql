-- Pending sessions of user $1 by resource group, as `max_pending_per_user` counts them.
SELECT resource_group, count(*) AS n
FROM sessions
WHERE owner = $1 AND status = 'PENDING' AND type <> 'system' GROUP BY 1
