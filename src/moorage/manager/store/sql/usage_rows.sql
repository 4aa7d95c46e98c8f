-- What everybody has of each resource group: per owner and project the sum of each slot, and as slot '' how many
-- sessions (indexes sessions_running, sessions_moving). Sessions count from their placement until they have ended, with
-- what they asked for; what is fenced on a silent agent is nobody's use any more.
WITH held AS MATERIALIZED (
    SELECT resource_group, owner, project, slots FROM sessions WHERE status = 'RUNNING'
    UNION ALL
    SELECT resource_group, owner, project, slots FROM sessions
    WHERE status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'TERMINATING')
)
SELECT resource_group, owner, project, '' AS slot, count(*) AS amount FROM held GROUP BY 1, 2, 3
UNION ALL
SELECT h.resource_group, h.owner, h.project, e.key, sum(e.value::bigint)::bigint
FROM held h, jsonb_each_text(h.slots) e GROUP BY 1, 2, 3, 4
