-- What the lifekeeper must look at: sessions on their way, with a passed deadline, with an ended kernel, or that wait
-- for another try though no agent is left for one (indexes sessions_moving, sessions_deadline, kernels_live_by_agent,
-- sessions_pending); or just one session ($1).
SELECT s.id, s.status, s.revision, s.attempt, s.reruns, s.rerun_from, s.spec, s.reason, s.detail, s.deadline_at,
       k.id AS kernel_id, k.status AS kernel_status, k.reason AS kernel_reason, k.detail AS kernel_detail,
       k.exit_code, k.agent_id, now() AS now,
       (SELECT count(*) FROM agents a
        WHERE a.resource_group = s.resource_group AND a.status = 'ALIVE' AND NOT a.draining
          AND NOT EXISTS (SELECT FROM kernels p WHERE p.session_id = s.id AND p.agent_id = a.id
                            AND p.attempt > s.rerun_from)) AS other_agents,
       (SELECT count(*) FROM agents a
        WHERE a.resource_group = s.resource_group AND a.status <> 'LOST' AND NOT a.draining
          AND NOT EXISTS (SELECT FROM kernels p WHERE p.session_id = s.id AND p.agent_id = a.id
                            AND p.attempt > s.rerun_from)) AS untried_agents
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
WHERE CASE WHEN $1::uuid IS NOT NULL THEN s.id = $1 ELSE
    s.id IN (
        SELECT id FROM sessions WHERE status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'TERMINATING')
        UNION
        SELECT id FROM sessions WHERE deadline_at <= now() AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
        UNION
        SELECT r.id FROM sessions r JOIN kernels e ON e.session_id = r.id AND e.attempt = r.attempt
        WHERE r.status = 'RUNNING' AND e.status <> 'RUNNING'
        UNION
        SELECT w.id FROM sessions w WHERE w.status = 'PENDING' AND w.attempt > w.rerun_from + 1 AND NOT EXISTS (
            SELECT FROM agents a
            WHERE a.resource_group = w.resource_group AND a.status <> 'LOST' AND NOT a.draining
              AND NOT EXISTS (SELECT FROM kernels p WHERE p.session_id = w.id AND p.agent_id = a.id
                                AND p.attempt > w.rerun_from)))
    END
ORDER BY s.id, k.role
