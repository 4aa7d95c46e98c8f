-- The sessions to reconcile: those in a status that must change, and those past their deadline (indexes sessions_moving,
-- sessions_deadline). With $1 also sessions for which a notification is the faster signal: running ones with an ended
-- kernel (sessions_running), those with a kernel on a LOST agent (kernels_live_by_agent), pending ones to be retried for which too few agents are left (sessions_pending), and
-- pending ones with a failed dependency (sessions_dependent).
SELECT id FROM sessions WHERE status IN ('SCHEDULED', 'PREPARING', 'CREATING', 'TERMINATING')
UNION
SELECT id FROM sessions WHERE deadline_at <= now() AND status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR')
UNION
SELECT r.id FROM sessions r, LATERAL (
    SELECT FROM kernels e WHERE e.session_id = r.id AND e.attempt = r.attempt AND e.status <> 'RUNNING' LIMIT 1) e
WHERE $1::boolean AND r.status = 'RUNNING'
UNION
SELECT k.session_id FROM agents a JOIN kernels k ON k.agent_id = a.id
WHERE $1::boolean AND a.status = 'LOST' AND k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
UNION
SELECT w.id FROM sessions w
WHERE $1::boolean AND w.status = 'PENDING' AND w.attempt > w.requeued_from + 1 AND (
    SELECT count(*) FROM (
        SELECT FROM agents a
        WHERE a.resource_group = w.resource_group AND a.status <> 'LOST' AND NOT a.draining
          AND NOT (a.id = ANY (ARRAY(SELECT p.agent_id FROM kernels p WHERE p.session_id = w.id
                                       AND p.attempt > w.requeued_from AND p.agent_id IS NOT NULL
                                       AND (p.status = 'ERROR' OR NOT w.spec ? 'cluster'))))
        LIMIT CASE WHEN w.spec #>> '{cluster,mode}' = 'multi-node' THEN (w.spec #>> '{cluster,size}')::int ELSE 1 END) untried
    ) < CASE WHEN w.spec #>> '{cluster,mode}' = 'multi-node' THEN (w.spec #>> '{cluster,size}')::int ELSE 1 END
UNION
SELECT w.id FROM sessions w
WHERE $1::boolean AND w.status = 'PENDING' AND w.dependencies > 0 AND w.spec ->> 'dependency_failed' IS DISTINCT FROM 'wait'
  AND EXISTS (SELECT FROM session_dependencies d JOIN sessions u ON u.id = d.depends_on
              WHERE d.session_id = w.id AND dependency_state(d.condition, u.status, u.result) = 'failed')
