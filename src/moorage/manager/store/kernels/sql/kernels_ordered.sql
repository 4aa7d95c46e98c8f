-- Kernels among these ($1, with their agents $2) that have not ended there, and whether each should
-- run. Like agent_kernels.sql, but by primary key.
SELECT k.id, k.agent_id, k.status IN (:IN_ORDERS) AS wanted,
       r.generation AS reload_generation,
       (s.status = 'RUNNING' AND s.suspended_attempt = k.attempt) IS TRUE AS suspended
FROM kernels k
JOIN unnest($1::uuid[], $2::text[]) AS i(id, agent_id) ON k.id = i.id AND k.agent_id = i.agent_id
JOIN sessions s ON s.id = k.session_id
LEFT JOIN kernel_reloads r ON r.kernel_id = k.id
WHERE k.status NOT IN ('PENDING', :TERMINAL)
