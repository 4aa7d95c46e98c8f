-- Allocated slots by resource group, owner, project and QoS, for quotas; slot '' counts sessions,
-- and 'system-sessions' counts those of type system, which are counted nowhere else (indexes
-- sessions_running, sessions_moving). The slots that a session requested are counted from its
-- placement until it has ended. Fenced allocations on a silent agent are counted for nobody.
WITH held AS MATERIALIZED (
    SELECT s.resource_group, s.owner, s.project, s.slots, s.type = 'system' AS system, q.qos
    FROM sessions s LEFT JOIN session_qos q ON q.session_id = s.id
    WHERE s.status = 'RUNNING'
    UNION ALL
    SELECT s.resource_group, s.owner, s.project, s.slots, s.type = 'system', q.qos
    FROM sessions s LEFT JOIN session_qos q ON q.session_id = s.id
    WHERE s.status IN (:AWAITING_AGENT)
)
SELECT resource_group, owner, project, qos,
       CASE WHEN system THEN 'system-sessions' ELSE '' END AS slot, count(*) AS amount
FROM held GROUP BY 1, 2, 3, 4, 5
UNION ALL
SELECT h.resource_group, h.owner, h.project, h.qos, e.key,
       coalesce(sum(as_integer(e.value)), 0)::bigint
FROM held h, jsonb_each(as_object(h.slots)) e WHERE NOT h.system GROUP BY 1, 2, 3, 4, 5
