-- Live kernels with a lease on silent agents that still hold leases for their runtime (index
-- kernels_live_by_agent).
SELECT k.id, k.agent_id, a.last_seen, k.lease_s, as_number(s.spec -> 'stop_grace_s') AS stop_s
FROM agents a JOIN kernels k ON k.agent_id = a.id JOIN sessions s ON s.id = k.session_id
WHERE a.status <> 'ALIVE' AND k.lease_s IS NOT NULL
  AND s.spec ->> 'runtime' = ANY (a.lease_runtimes)
  AND k.status NOT IN ('PENDING', :TERMINAL)
ORDER BY k.agent_id, k.id
