-- The kernels of a group ($1) that held allocations between $2 and $3, whose ids come after $4,
-- ordered by id; at most $5 kernels. Reads kernels by primary key, and reads allocations only of
-- kernels that had not ended long before.
SELECT k.id, k.session_id, s.name, k.agent_id, s.owner, s.project, s.priority, s.endpoint_id,
       least(as_number(s.spec -> 'timeout_s'), as_number(s.spec -> 'max_lifetime_s'),
             as_number(s.spec -> 'walltime_s'))
         + as_number(s.spec -> 'stop_grace_s')
             + coalesce(as_number(s.spec #> '{checkpoint,grace_s}'), 0) AS limit_s,
         coalesce(as_boolean(s.spec -> 'preemptible'), s.type <> 'interactive')
           AND s.type <> 'system' AS preemptible,
         h.taken_at, h.released_at, h.slots, h.devices, h.amounts
FROM kernels k JOIN sessions s ON s.id = k.session_id, LATERAL (
    SELECT min(a.taken_at) AS taken_at,
           CASE WHEN bool_or(a.released_at IS NULL) THEN NULL
                ELSE max(a.released_at) END AS released_at,
           array_agg(a.slot) AS slots, array_agg(a.device_id) AS devices,
           array_agg(a.amount) AS amounts
    FROM (SELECT * FROM allocations WHERE kernel_id = k.id ORDER BY slot, device_id) a) h
WHERE k.id > $4 AND k.agent_id IS NOT NULL AND s.resource_group = ANY (group_names($1))
  -- A kernel that ended because of its lease holds its allocations until the agent reports again. A
  -- day is allowed for that.
  AND (k.status NOT IN (:TERMINAL) OR k.status_since > $2::timestamptz - interval '1 day')
  AND h.taken_at < $3 AND (h.released_at IS NULL OR h.released_at > $2)
ORDER BY k.id LIMIT $5
