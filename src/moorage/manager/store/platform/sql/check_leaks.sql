-- Ended kernels (on agents $2; NULL: on all) that still hold allocations more than $1 seconds after
-- their agent, which is ALIVE, saw them end. Kernels that ended because of their lease are
-- excluded: their allocations are fenced until a report shows that they are gone.
SELECT k.id::text AS subject, 'it is ' || k.status || ' since ' || k.status_since || ' and holds '
       || string_agg(a.amount || ' ' || a.slot || ' ' || a.device_id, ', ') || ' of '
           || k.agent_id AS detail
FROM kernels k JOIN allocations a ON a.kernel_id = k.id JOIN agents n ON n.id = a.agent_id
WHERE a.released_at IS NULL AND k.status IN (:TERMINAL)
  AND k.observed IN ('EXITED', 'GONE') AND n.status = 'ALIVE'
  AND k.status_since < now() - make_interval(secs => $1)
  AND ($2::text[] IS NULL OR a.agent_id = ANY ($2))
GROUP BY k.id ORDER BY 1 LIMIT 1000
