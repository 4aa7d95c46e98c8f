-- Live kernels on silent agents whose jobs have a walltime (index kernels_live_by_agent).
SELECT k.id, k.agent_id, a.last_seen, k.ends_at, now() AS now
FROM agents a JOIN kernels k ON k.agent_id = a.id
WHERE a.status <> 'ALIVE' AND k.ends_at IS NOT NULL
  AND k.status NOT IN ('PENDING', :TERMINAL)
ORDER BY k.agent_id, k.id
