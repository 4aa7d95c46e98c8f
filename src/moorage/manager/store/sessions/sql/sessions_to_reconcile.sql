-- The sessions to reconcile: those past their deadline (index sessions_deadline). With $1, also
-- sessions for which a notification is the faster signal: moving ones whose kernels are in another
-- status (sessions_moving), those with a kernel that ended in the last $2 seconds (kernels_ended),
-- those that depend on a session with such a kernel, those with a kernel on a LOST agent
-- (agents_silent, kernels_live_by_agent), and pending ones to be retried for which too few agents
-- are left (sessions_retried).
WITH ended AS MATERIALIZED (
    SELECT DISTINCT e.session_id FROM kernels e
    WHERE $1::boolean AND e.status IN (:TERMINAL)
      AND e.status_since > now() - make_interval(secs => $2)
)
SELECT id FROM sessions WHERE deadline_at <= now() AND status NOT IN (:TERMINAL)
UNION
SELECT s.id FROM sessions s
WHERE $1::boolean AND s.status IN (:AWAITING_AGENT)
  AND EXISTS (SELECT FROM kernels k
              WHERE k.session_id = s.id AND k.attempt = s.attempt AND k.status <> s.status)
UNION
SELECT r.id FROM ended e, LATERAL (
    SELECT s.id FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
    WHERE s.id = e.session_id AND s.status = 'RUNNING' AND k.status <> 'RUNNING' LIMIT 1) r
UNION
SELECT w.id FROM ended e, LATERAL (
    SELECT w.id FROM session_dependencies d JOIN sessions u ON u.id = d.depends_on
    JOIN sessions w ON w.id = d.session_id
    WHERE d.depends_on = e.session_id AND w.status = 'PENDING'
      AND (w.spec ->> 'dependency_failed' IS DISTINCT FROM 'wait' OR d.condition = 'adopted')
      AND dependency_state(d.condition, u.status, u.result) = 'failed' OFFSET 0) w
UNION
SELECT w.id
FROM (SELECT DISTINCT d.session_id AS id FROM ended e
      JOIN session_dependencies d ON d.depends_on = e.session_id AND d.condition LIKE 'any-%') d
JOIN sessions w ON w.id = d.id AND w.status = 'PENDING'
    AND w.spec ->> 'dependency_failed' IS DISTINCT FROM 'wait'
WHERE EXISTS (SELECT FROM dependency_outcomes(w.id) o WHERE o.state = 'failed')
UNION
SELECT k.session_id FROM agents a JOIN kernels k ON k.agent_id = a.id
WHERE $1::boolean AND a.status = 'LOST' AND k.status NOT IN ('PENDING', :TERMINAL)
UNION
SELECT w.id FROM sessions w
WHERE $1::boolean AND w.status = 'PENDING' AND w.attempt > w.requeued_from + 1 AND (
    SELECT count(*) FROM (
        SELECT FROM agents a
        WHERE a.resource_group = w.resource_group AND a.status <> 'LOST' AND NOT a.draining
          AND NOT (a.id = ANY (ARRAY(SELECT p.agent_id FROM kernels p WHERE p.session_id = w.id
                                       AND p.attempt > w.requeued_from AND p.agent_id IS NOT NULL
                                       AND (p.status = 'ERROR' OR NOT w.spec ? 'cluster'))))
        LIMIT CASE WHEN w.spec #>> '{cluster,mode}' = 'multi-node'
                   THEN as_integer(w.spec #> '{cluster,size}')
                   ELSE 1 END) untried
    ) < CASE WHEN w.spec #>> '{cluster,mode}' = 'multi-node'
             THEN as_integer(w.spec #> '{cluster,size}')
             ELSE 1 END
