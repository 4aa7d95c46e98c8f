-- Sessions on agents whose drain deadline has passed by $1, with the agent and the actor who started the drain.
SELECT DISTINCT ON (k.session_id) k.session_id, a.id AS agent_id, a.cordoned_by
FROM agents a
JOIN kernels k ON k.agent_id = a.id AND k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR', 'TERMINATING')
JOIN sessions s ON s.id = k.session_id AND s.attempt = k.attempt
    AND s.status IN ('SCHEDULED', 'PREPARING', 'QUEUED', 'CREATING', 'RUNNING')
WHERE a.cordon = 'drain' AND a.stop_at <= $1
ORDER BY k.session_id, a.id
