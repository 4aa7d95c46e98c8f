-- What the lifekeeper must look at: sessions on their way, with a passed deadline, with an ended kernel, or that wait
-- for another try though no agent is left for one (indexes sessions_moving, sessions_deadline, kernels_live_by_agent,
-- sessions_pending); or, if given, just these ($1). Agents are counted only where that can matter.
WITH present AS (
    SELECT resource_group, count(*) FILTER (WHERE status = 'ALIVE') AS alive, count(*) AS there
    FROM agents WHERE status <> 'LOST' AND NOT draining GROUP BY 1
), again AS (
    SELECT w.id, w.resource_group, w.rerun_from FROM sessions w
    WHERE $1::uuid[] IS NULL AND w.status = 'PENDING' AND w.attempt > w.rerun_from + 1
), wanted AS (
    SELECT unnest($1::uuid[]) AS id
    UNION
    SELECT id FROM sessions
    WHERE $1::uuid[] IS NULL AND status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'TERMINATING')
    UNION
    SELECT id FROM sessions
    WHERE $1::uuid[] IS NULL AND deadline_at <= now() AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
    UNION
    SELECT r.id FROM sessions r JOIN kernels e ON e.session_id = r.id AND e.attempt = r.attempt
    WHERE $1::uuid[] IS NULL AND r.status = 'RUNNING' AND e.status <> 'RUNNING'
    UNION
    SELECT w.id FROM again w
    WHERE coalesce((SELECT there FROM present g WHERE g.resource_group = w.resource_group), 0) <= (
        SELECT count(DISTINCT p.agent_id) FROM kernels p JOIN agents a ON a.id = p.agent_id
        WHERE p.session_id = w.id AND p.attempt > w.rerun_from
          AND a.resource_group = w.resource_group AND a.status <> 'LOST' AND NOT a.draining)
)
SELECT s.id, s.status, s.revision, s.attempt, s.reruns, s.rerun_from, s.spec, s.reason, s.detail, s.deadline_at,
       k.id AS kernel_id, k.status AS kernel_status, k.reason AS kernel_reason, k.detail AS kernel_detail,
       k.exit_code, k.agent_id, now() AS now,
       coalesce(g.alive, 0) - coalesce(t.alive, 0) AS other_agents,
       coalesce(g.there, 0) - coalesce(t.there, 0) AS untried_agents
FROM wanted JOIN sessions s USING (id) JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
LEFT JOIN present g ON g.resource_group = s.resource_group
LEFT JOIN LATERAL (
    SELECT count(DISTINCT a.id) FILTER (WHERE a.status = 'ALIVE') AS alive, count(DISTINCT a.id) AS there
    FROM kernels p JOIN agents a ON a.id = p.agent_id
    WHERE p.session_id = s.id AND p.attempt > s.rerun_from
      AND a.resource_group = s.resource_group AND a.status <> 'LOST' AND NOT a.draining
) t ON true
WHERE s.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY s.id, k.role
