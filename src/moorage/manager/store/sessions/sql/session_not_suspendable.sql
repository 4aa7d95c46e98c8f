-- Agents with a live kernel of a session ($1) whose runtime they cannot suspend.
SELECT DISTINCT a.id, a.version
FROM sessions s JOIN kernels k ON k.session_id = s.id AND k.attempt = s.attempt
JOIN agents a ON a.id = k.agent_id
WHERE s.id = $1::uuid AND k.status NOT IN (:TERMINAL)
  AND NOT s.spec ->> 'runtime' = ANY (a.suspend_runtimes)
ORDER BY a.id
