-- Sessions on agents whose drain deadline has passed by $1, with the agent and the actor who
-- started the drain. OFFSET 0 keeps the order of the joins: starting from the agents, of which
-- there is hardly ever one.
SELECT DISTINCT ON (k.session_id) k.session_id, a.id AS agent_id, a.cordoned_by
FROM (SELECT id, cordoned_by FROM agents WHERE cordon = 'drain' AND stop_at <= $1 OFFSET 0) a
CROSS JOIN LATERAL (
    SELECT k.session_id
    FROM kernels k JOIN sessions s ON s.id = k.session_id AND s.attempt = k.attempt
    WHERE k.agent_id = a.id AND k.status NOT IN ('PENDING', :TERMINAL, 'TERMINATING')
      AND s.status IN (:IN_ORDERS)
    OFFSET 0) k
ORDER BY k.session_id, a.id
