-- Allocated slots by resource group, owner and project, for quotas; slot '' counts sessions, and
-- 'system-sessions' counts those of type system, which are counted nowhere else (indexes
-- sessions_running, sessions_moving). The slots that a session requested are counted from its
-- placement until it has ended. Fenced allocations on a silent agent are counted for nobody.
WITH held AS MATERIALIZED (
    SELECT resource_group, owner, project, slots, type = 'system' AS system
    FROM sessions
    WHERE status = 'RUNNING'
    UNION ALL
    SELECT resource_group, owner, project, slots, type = 'system' FROM sessions
    WHERE status IN (:AWAITING_AGENT)
)
SELECT resource_group, owner, project, CASE WHEN system THEN 'system-sessions' ELSE '' END AS slot,
       count(*) AS amount
FROM held GROUP BY 1, 2, 3, 4
UNION ALL
SELECT h.resource_group, h.owner, h.project, e.key, coalesce(sum(as_integer(e.value)), 0)::bigint
FROM held h, jsonb_each(as_object(h.slots)) e WHERE NOT h.system GROUP BY 1, 2, 3, 4
