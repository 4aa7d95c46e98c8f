-- The live kernels of those of the agents ($1; null: all) that are in these resource groups ($2), with their allocations and when each must end (index kernels_live_by_agent).
SELECT k.agent_id, k.id, k.session_id, k.status = 'TERMINATING' OR s.status = 'TERMINATING' AS ending, k.status_since,
       CASE WHEN s.status = 'RUNNING' AND k.attempt = s.attempt THEN s.deadline_at END AS deadline_at, h.taken_at,
       s.priority, s.owner, s.project, s.endpoint_id, (s.spec ->> 'preemptible') IS DISTINCT FROM 'false' AS preemptible,
       least((s.spec ->> 'timeout_s')::float8, (s.spec ->> 'max_lifetime_s')::float8, (s.spec ->> 'walltime_s')::float8) AS runs_s,
       (s.spec ->> 'stop_grace_s')::float8 AS stop_s, h.slots, h.devices, h.amounts
FROM kernels k JOIN sessions s ON s.id = k.session_id, LATERAL (
    SELECT min(a.taken_at) AS taken_at, array_agg(a.slot) AS slots, array_agg(a.device_id) AS devices,
           array_agg(a.amount) AS amounts
    FROM (SELECT * FROM allocations WHERE kernel_id = k.id AND released_at IS NULL ORDER BY slot, device_id) a) h
WHERE k.agent_id = ANY (ARRAY(SELECT id FROM agents WHERE ($1::text[] IS NULL OR id = ANY ($1)) AND resource_group = ANY ($2::text[])))
  AND k.status NOT IN ('PENDING', 'TERMINATED', 'CANCELLED', 'ERROR')
ORDER BY k.agent_id, k.id
