-- Kernels on these agents ($1) in these resource groups ($2): live kernels (index
-- kernels_live_by_agent), and ended ones whose allocations are not released yet (index
-- allocations_held), with their allocations and when each must end.
WITH asked AS MATERIALIZED (
    SELECT id FROM agents WHERE id = ANY ($1::text[]) AND resource_group = ANY ($2::text[])
), unreleased AS MATERIALIZED (
    SELECT * FROM allocations
    WHERE agent_id = ANY (ARRAY(SELECT id FROM asked)) AND released_at IS NULL
), held AS MATERIALIZED (
    SELECT kernel_id, min(taken_at) AS taken_at, array_agg(slot ORDER BY slot, device_id) AS slots,
           array_agg(device_id ORDER BY slot, device_id) AS devices,
           array_agg(amount ORDER BY slot, device_id) AS amounts
    FROM unreleased GROUP BY kernel_id
), found AS (
    SELECT id FROM kernels
    WHERE agent_id = ANY (ARRAY(SELECT id FROM asked)) AND status NOT IN ('PENDING', :TERMINAL)
    UNION SELECT kernel_id FROM held
)
SELECT k.agent_id, k.id, k.session_id, k.status_since,
       k.status IN ('TERMINATING', :TERMINAL) OR s.status = 'TERMINATING' AS ending,
       CASE WHEN s.status = 'RUNNING' AND k.attempt = s.attempt
            THEN s.deadline_at END AS deadline_at,
       h.taken_at, s.priority, s.owner, s.project, s.endpoint_id,
       coalesce(as_boolean(s.spec -> 'preemptible'), s.type <> 'interactive')
         AND s.type <> 'system' AS preemptible,
       -- The limit of a suspended session does not pass, so its end is unknown.
       CASE WHEN s.suspended_attempt IS DISTINCT FROM s.attempt OR s.status <> 'RUNNING'
            THEN least(as_number(s.spec -> 'timeout_s'), as_number(s.spec -> 'max_lifetime_s'),
                       as_number(s.spec -> 'walltime_s')) END AS runs_s,
       as_number(s.spec -> 'stop_grace_s') AS stop_grace_s,
       as_number(s.spec #> '{checkpoint,grace_s}') AS checkpoint_s,
       CASE WHEN s.spec ? 'checkpoint'
            THEN (SELECT as_number(g.options #> '{preemption,max_grace_s}')
                  FROM resource_groups g
                  WHERE g.name = s.resource_group) END AS max_grace_s,
       h.slots, h.devices, h.amounts
-- OFFSET 0: use the index regardless of estimates
FROM found f, LATERAL (SELECT * FROM kernels WHERE id = f.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT * FROM sessions WHERE id = k.session_id OFFSET 0) s
    LEFT JOIN held h ON h.kernel_id = k.id
ORDER BY k.agent_id, k.id
